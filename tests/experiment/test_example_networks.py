"""The example networks are what the command writes, can be trained on, and SD-FEEL's own is its paper's model."""

from pathlib import Path

import pytest

from fedge.cost.bottlenecks import bottlenecks
from fedge.experiment.build import experiment
from fedge.experiment.config import Config
from fedge.experiment.network_file import about, examples, read_network
from fedge.runner.expected import bottlenecks_of
from fedge.view.network import bottleneck_lines, network_lines
from tests.helpers import small

COPIES = Path(__file__).parents[2] / "examples/networks"
NAMES = ["factory", "hospitals", "rural-lora", "sdfeel", "urban-5g"]


def test_copies_are_what_the_command_writes():
    assert list(examples()) == NAMES
    assert {path.stem: path.read_text() for path in COPIES.glob("*.toml")} == examples()
    assert about(examples()["urban-5g"]).startswith("Urban 5G: phones on three mid-band sites")
    assert all("assumed" in text for name, text in examples().items() if name != "sdfeel")


@pytest.mark.parametrize("name", NAMES)
def test_examples_can_be_trained_on(name):
    """The model's memory is there, and every algorithm has the links it needs; on the field edges have none between."""
    file = COPIES / f"{name}.toml"
    for algorithm in ["fedavg", "hierfavg"] + ["sdfeel"] * (name != "rural-lora"):
        made = experiment(Config.of({"algorithm": algorithm, "network": str(file), "partition": "iid"}))
        assert made.clock.advance(made.clock.start, 0).min() > 0
    drawn = network_lines(read_network(file))
    assert all(edge.name in drawn for edge in made.network.edges)


@pytest.mark.parametrize("algorithm", ["fedavg", "hierfavg", "hist", "hiersfl", "sdfeel"])
def test_sdfeels_own_takes_what_its_paper_says(algorithm):
    """The keys' defaults are the paper's rates, without downlinks: the closed form."""
    keys = {"algorithm": algorithm, "partition": "iid"} | ({"cut": "hidden"} if algorithm == "hiersfl" else {})
    closed = small(**keys, clients=50, cells=10).clock
    own = small(**keys, clients=50, cells=10, network=str(COPIES / "sdfeel.toml"), downlink=False).clock
    both = [clock.advance(clock.start, 0).max() for clock in (closed, own)]
    assert both[1] == pytest.approx(both[0], rel=1e-9)


def test_bottlenecks_of_the_factory():
    """238,510 parameters are 7.63 Mbit: 2.39 s at a sensor's 3.2 Mbit/s, while eight machines of the press share 33
    Mbit/s (1.85 s); three edges share 50 Mbit/s up (0.458 s) and 100 down."""
    config = Config.of({"algorithm": "hierfavg", "network": str(COPIES / "factory.toml")})
    found, what = bottlenecks_of(config)
    assert what == "hierfavg, mlp (238,510 parameters) and batch 10"
    seconds = {one.tier: (one.seconds, one.span.who) for one in found}
    bits = 32 * 238_510
    assert seconds == {
        "5 local steps": (pytest.approx(5 * 20 * 8 * 784 * 10 / 1e9), "client press-camera-1"),
        "model, client → edge": (pytest.approx(bits / 3.2e6), "client weld-sensor-1"),
        "model, edge → client": (pytest.approx(bits / 3.2e6), "client weld-sensor-1"),
        "model, edge → cloud": (pytest.approx(3 * bits / 50e6), "backhaul"),
        "model, cloud → edge": (pytest.approx(3 * bits / 100e6), "backhaul"),
    }
    assert "weld-sensor-1 sends and receives" in bottleneck_lines(found, what)


def test_bottlenecks_of_a_split_model_and_of_gossip():
    keys = {"network": str(COPIES / "hospitals.toml"), "partition": "iid"}
    tiers = [
        one.tier for one in bottlenecks(small(algorithm="hiersfl", cut="hidden", clients=12, cells=4, **keys).clock)
    ]
    assert tiers[3:5] == ["activations, client → edge", "gradients, edge → client"]
    slow = bottlenecks(small(algorithm="sdfeel", clients=12, cells=4, **keys).clock)[-1]
    assert (slow.tier, slow.span.who) == ("model, edge → edge", "link county → university")
