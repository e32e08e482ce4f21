"""What a client holds is reckoned from shapes: worked by hand, and held against what the compiler plans to allocate."""

import jax
import jax.numpy as jnp
import pytest

from fedge.core.client import NOTHING, Link, Samples, local_round
from fedge.cost.live import bytes_of, peak_bytes
from fedge.errors import ConfigError
from fedge.experiment.build import experiment
from fedge.experiment.config import Config
from fedge.experiment.holding import holdings
from tests.helpers import small

SQUARE = jax.ShapeDtypeStruct((16, 16), jnp.float32)
ONE = 4 * 16 * 16  # bytes


@pytest.mark.parametrize(
    ("function", "squares"),
    [
        (lambda x: x @ x, 1),
        (lambda x: (x @ x) @ x, 2),  # the first product is there until the second is
        (lambda x: ((x @ x) @ x) @ x, 2),  # and then gives way to the third
        (lambda x: jnp.exp(x @ x) + 1, 1),  # in the place of the product
        (lambda x: (x @ x) + (x @ x).T @ x, 2 + 1),  # two products, of which one is turned, and what comes of it
        (
            lambda x: jax.lax.scan(lambda w, _: (jnp.exp(w @ w) * w, None), x, None, length=5)[0],
            1 + 1,
        ),  # w in its place
        (lambda x: jnp.sort(x.ravel()), 1 + 2),  # a sort holds its values once more, and as many positions
        (lambda x: jax.lax.scan(lambda w, _: ((w @ w) @ w, None), x, None, length=5)[0], 1 + 2),  # its result; a turn
        (
            lambda x: jax.jit(lambda y: y @ y)(x) @ jax.jit(lambda y: y @ y)(x + 1),
            3,
        ),  # calls share nothing, x + 1 fuses
    ],
)
def test_a_program_worked_by_hand(function, squares):
    assert peak_bytes(function, SQUARE) == squares * ONE


def of(made):
    return holdings(made.job.algorithm, made.job.task, made.model, made.clock.ledger, made.dataset, made.partition)


@pytest.mark.parametrize(
    ("model", "keys"),
    [("mlp", {"batch": 20}), ("cnn", {"batch": 8}), ("mlp", {"optimizer": "adam", "codec": "topk:0.1"})],
)
def test_a_client_holds_what_the_compiler_allocates(model, keys):
    """Without what a process needs besides, which no compiler knows of, the two are within 20 %."""
    made = small(model=model, clients=2, cells=1, partition="iid", **keys)
    task, data = made.job.task, made.dataset
    count = int(made.partition.size.max())
    own = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), Samples.alone(data.x_train[:count], data.y_train[:count])
    )
    weights = made.clock.ledger.stacks[0].shapes
    lost = {p: weights[p] for p in weights if made.job.algorithm.way.feeds_back}

    def role(weights, own, lost, client, lr):
        memory = NOTHING._replace(lost=lost)
        return local_round(
            task, made.job.algorithm.way, weights, Link(), own, memory, made.job.key, client, client, 3, lr
        )

    i, lr = jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((), task.dtype)
    plan = jax.jit(role).lower(weights, own, lost, i, lr).compile().memory_analysis()
    allocated = plan.argument_size_in_bytes + plan.output_size_in_bytes + plan.temp_size_in_bytes
    held = of(made)[0].client
    assert held.total - held.process == pytest.approx(allocated, rel=0.2)
    assert held.models == 2 * bytes_of(weights)


def test_parts_of_what_is_held():
    plain, adam, scaffold = (
        of(small(**keys))[0].client for keys in ({}, {"optimizer": "adam"}, {"algorithm": "scaffold"})
    )
    size = 4 * small().model.parameters
    assert (plain.models, plain.gradient, plain.optimiser, plain.remembered) == (2 * size, size, 0, 0)
    assert 2 * size <= adam.optimiser <= 2 * size + 8  # two moments, and a count
    assert scaffold.remembered == 2 * size  # its own row and the cell's
    halves = of(small(algorithm="hiersfl", cut="hidden", model="mlp"))[0]
    half = halves.client.models / 2
    assert half + (halves.edge.models - 4 * half) / 2 == size  # what a client has not, its edge has, twice
    middle, mean = (of(small(edge_rule=rule))[0].edge for rule in ("median", "mean"))
    assert (mean.models, mean.total) == (4 * size, 4 * size)  # its own, one that arrives, the sum without and with it
    cell = max(map(len, small().topology.roster))
    assert middle.models == (1 + 2 * cell) * size
    assert middle.activations >= cell * size  # ranks of all of them
    assert 0 < of(small(edge_server="adam"))[0].edge.optimiser - 2 * size <= 8 > mean.optimiser == 0
    quarters = of(small(algorithm="hist", clients=8, cells=4, partition="iid"))[0].client
    assert quarters.models < plain.models / 3


def test_a_network_that_cannot_hold_the_model_is_refused_before_anything_is_trained(tmp_path):
    file, text = (
        tmp_path / "net.toml",
        """
[[edges]]
name = "a"
backhaul_up_bps = 1e6
[[clients]]
name = "tiny"
cell = "a"
count = 2
step_seconds = 1
up_bps = 1e6
memory_mb = {}
""",
    )
    keys = {"algorithm": "hierfavg", "partition": "iid", "network": str(file)}
    file.write_text(text.format(5))
    with pytest.raises(ConfigError) as problem:
        experiment(Config.of(keys))
    assert "client 'tiny-1' of network net has 5 MB of memory, and hierfavg with model=mlp" in str(problem.value)
    assert "(2 clients are too small); take a smaller model" in str(problem.value)
    assert experiment(Config.of(keys | {"model": "cnn", "batch": 4})).network is not None
    file.write_text(text.format(30).replace('name = "a"\n', 'name = "a"\nmemory_mb = 1\n', 1))
    with pytest.raises(ConfigError, match=r"edge 'a' of network net has 1 MB of memory"):
        experiment(Config.of(keys))
