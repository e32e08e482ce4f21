"""Bytes and seconds against the papers' formulas (SPEC §5)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.cost.clock import SHANNON, Clock, Rates
from fedge.cost.ledger import Ledger, totals
from fedge.errors import ConfigError
from fedge.models import make
from fedge.runner.loop import price
from tests.helpers import small

CNN, RESNET = 21_840, 11_173_962


def clock(algorithm, parameters, step_seconds, tau1, tau2, **rates):
    """A clock for 50 clients in 10 cells whose model is one array of that many float32 numbers."""
    made = small(algorithm=algorithm, clients=50, cells=10, local_steps=tau1, edge_rounds=tau2, partition="iid",
                 **({"gossip": 1} if algorithm == "sdfeel" else {}))  # fmt: skip
    state = made.job.algorithm.start({"w": np.zeros(parameters, np.float32)})
    ledger = Ledger(made.job.algorithm, state, made.job.key)
    return Clock(ledger, Rates(step_seconds, **rates))


# t_c = 20·62,720/2e9 and 10,230·245,760/2e9; t_u = 32M/R; t_ss = t_u/10; t_cloud = 10 t_u.
MNIST = (CNN, 20 * 62_720 / 2e9)
CIFAR = (RESNET, 10_230 * 245_760 / 2e9)


@pytest.mark.parametrize(
    ("algorithm", "workload", "taus", "seconds", "budget", "iterations"),
    [
        ("sdfeel", MNIST, (5, 1), 0.13866, 40, 1440),
        ("fedavg", MNIST, (5, 1), 1.23520, 40, 160),
        ("hierfavg", MNIST, (5, 1), 1.35841, 40, 145),
        ("sdfeel", CIFAR, (5, 2), 144.946, 10_000, 680),
        ("fedavg", CIFAR, (5, 2), 642.930, 10_000, 150),
        ("hierfavg", CIFAR, (5, 2), 769.002, 10_000, 130),
        ("hierfavg", MNIST, (5, 5), None, 40, 525),
        ("hierfavg", MNIST, (5, 10), None, 40, 800),
        ("hierfavg", CIFAR, (5, 10), None, 10_000, 350),
        ("sdfeel", MNIST, (1, 1), None, 40, 293),
        ("sdfeel", MNIST, (10, 1), None, 40, 2820),
    ],
)
def test_the_papers_table(algorithm, workload, taus, seconds, budget, iterations):
    (parameters, t_c), (tau1, tau2) = workload, taus
    ticking = clock(algorithm, parameters, t_c, tau1, tau2)
    taken = ticking.advance(ticking.start, 0).max()
    t_u = 32 * parameters / SHANNON
    formula = {
        "sdfeel": tau2 * (tau1 * t_c + t_u) + 0.1 * t_u,
        "hierfavg": tau2 * (tau1 * t_c + t_u) + 10 * t_u,
        "fedavg": tau1 * tau2 * t_c + 10 * t_u,
    }[algorithm]
    assert taken == pytest.approx(formula, rel=1e-9)
    if seconds is not None:
        assert taken == pytest.approx(seconds, rel=4e-5)  # the table has five figures
    assert tau1 * tau2 * int(budget // taken) == iterations


def test_transmission_rate():
    """1 MHz at SNR 50: 5.6724 Mbit/s; the CNN takes 0.12321 s, ResNet-18 63.036 s."""
    assert pytest.approx(5.6724e6, rel=1e-5) == SHANNON
    assert pytest.approx(0.12321, rel=1e-4) == 32 * CNN / SHANNON
    assert pytest.approx(63.036, rel=1e-5) == 32 * RESNET / SHANNON


@pytest.mark.parametrize("algorithm", ["fedavg", "hierfavg", "sdfeel"])
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_ledger_counts_every_link(algorithm, participation):
    made = small(algorithm=algorithm, participation=participation, clients=9, edge_rounds=2)
    links = made.clock.ledger.round(3)
    size = 4 * made.model.parameters
    sent = totals(links)
    # 3 cells of 3: all, or 2 of 3 (1.5 rounded up), take part in each edge round; FedAvg draws 5 of 9 (4.5 rounded up).
    turns = {"fedavg": {1.0: 9, 0.5: 5}, "hierfavg": {1.0: 18, 0.5: 12}, "sdfeel": {1.0: 18, 0.5: 12}}
    up = "client_to_cloud" if algorithm == "fedavg" else "client_to_edge"
    assert sent[up] == turns[algorithm][participation] * size
    assert len(links[up]) == 9
    if algorithm == "hierfavg":
        assert sent["edge_to_cloud"] == sent["cloud_to_edge"] == 3 * size
    if algorithm == "sdfeel":
        assert "edge_to_cloud" not in sent
        assert sent["edge_to_edge"] == 2 * 2 * size  # K_{1,2}: two links, two directions, one exchange


def test_ledger_counts_running_statistics_that_travel():
    """ResNet-18's BatchNorm sends 9,600 numbers beside its parameters, unless they stay where they are."""
    for bn, extra in (("avg_all", 9_600), ("local", 0), ("groupnorm", 0)):
        made = small(model="resnet18", clients=2, cells=1, bn=bn)
        model = make("resnet18", (16, 16, 3), 4)
        assert made.clock.ledger.cell_bytes(0)[0] == 4 * (model.parameters + extra)


def test_edges_wait_for_neighbours_only():
    """Path of 4, edge 0 late: after one exchange edge 1 is late too, edges 2 and 3 are not."""
    made = small(algorithm="sdfeel", graph="path", clients=4, cells=4, local_steps=1, edge_rounds=1)
    after = made.clock._exchange(np.array([10.0, 0, 0, 0]), np.ones(4))
    np.testing.assert_array_equal(after, [10, 11, 1, 1])


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 2), st.sampled_from(["fedavg", "hierfavg", "sdfeel"]))
@settings(deadline=None, max_examples=25)
def test_unequal_devices(device, link, straggle, algorithm):
    """Time goes forward, is the same when asked again, and equals the formula when nothing differs."""
    ticking = clock(algorithm, CNN, 1e-3, 5, 2, device_spread=device, link_spread=link, straggle=straggle)
    first = ticking.advance(ticking.start, 0)
    assert (first > 0).all()
    assert (ticking.advance(first, 1) > first).all()
    np.testing.assert_array_equal(first, ticking.advance(ticking.start, 0))
    if not (device or link or straggle):
        np.testing.assert_allclose(first, clock(algorithm, CNN, 1e-3, 5, 2).advance(ticking.start, 0))


def test_event_driven_equals_closed_form_when_devices_are_equal():
    """A spread so small that it changes nothing takes the other branch of the code."""
    for algorithm in ("fedavg", "hierfavg", "sdfeel"):
        even, event = (clock(algorithm, CNN, 1e-3, 5, 2, device_spread=d) for d in (0.0, 1e-13))
        np.testing.assert_allclose(event.advance(event.start, 0), even.advance(even.start, 0), rtol=1e-9)


def test_downlink_doubles_the_transfers():
    one, two = (clock("hierfavg", CNN, 1e-12, 1, 1, downlink=d).advance(np.zeros(10), 0).max() for d in (False, True))
    assert two == pytest.approx(2 * one, rel=1e-9)


def test_a_budget_decides_the_rounds():
    made = small(algorithm="hierfavg")
    one = price(small(algorithm="hierfavg", rounds=1))[0]
    assert len(price(small(algorithm="hierfavg", budget_seconds=7.5 * one.seconds))) == 7
    total = sum(one.sent.values())
    assert len(price(small(algorithm="hierfavg", budget_bytes=3 * total))) == 3
    assert len(price(small(algorithm="hierfavg", budget_seconds=7.5 * one.seconds, rounds=2))) == 2
    assert len(price(made)) == 30
    with pytest.raises(ConfigError, match=r"budget_bytes=10 does not cover one global round, which takes"):
        price(small(algorithm="hierfavg", budget_bytes=10))
