"""Bytes and seconds are held against the papers' formulas (HIST's load, SD-FEEL's latency), and closed forms."""

import dataclasses
from functools import cache
from typing import ClassVar

import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.keys import Purpose, host_rng
from fedge.core.sampling import draw_participants
from fedge.core.schedule import Schedule
from fedge.cost import cuts, ledger
from fedge.cost.clock import SHANNON, Clock, Rates
from fedge.cost.ledger import Ledger, totals
from fedge.errors import ConfigError
from fedge.experiment.build import cut_prices, experiment
from fedge.experiment.config import Config
from fedge.models import from_nnx
from fedge.runner.costs import Costs
from tests.helpers import shallow, small, toy

CNN, RESNET = 21_840, 11_173_962


def clock(algorithm, parameters, step_seconds, tau1, tau2, **rates):
    """Make a clock for 50 clients in 10 cells whose model is one array of that many float32 numbers."""
    made = small(algorithm=algorithm, clients=50, cells=10, local_steps=tau1, edge_rounds=tau2, partition="iid",
                 **({"gossip": 1} if algorithm == "sdfeel" else {}))  # fmt: skip
    state = made.job.algorithm.start({"w": np.zeros(parameters, np.float32)})
    return Clock(Ledger(made.job.algorithm, state, made.job.key, made.model.trainable), Rates(step_seconds, **rates))


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


def test_a_plan_draws_the_participants_of_many_rounds_at_once(monkeypatch):
    """The same in whatever order rounds are asked for, in a call for every 64 edge rounds."""
    calls = []
    monkeypatch.setattr(ledger, "draw_participants", lambda *a: (calls.append(a[2]), draw_participants(*a))[1])
    made = small(participation=0.5, clients=9, edge_rounds=2, straggle=0.1)
    Costs(made).after(30)  # bytes and seconds both need to know who takes part
    assert calls == [range(64)]
    late = made.clock.ledger.participants(100)
    (alone,) = draw_participants(made.job.key, made.job.algorithm.topology.roster, [100], 0.5)
    for one, other in zip(late, alone, strict=True):
        np.testing.assert_array_equal(one, other)


def test_ledger_counts_encoded_bytes_on_the_hop_that_is_encoded():
    """Both codecs send a byte for each number and a float32 for each tensor; other hops stay as they are."""
    plain = small().clock.ledger.totals(0)
    numbers, tensors = small().model.parameters, 4
    assert plain["client_to_edge"] % (4 * numbers) == 0
    for key, hop in (("codec", "client_to_edge"), ("down_codec", "edge_to_client"), ("cloud_codec", "edge_to_cloud")):
        for codec in ("int8", "qsgd8"):
            coded = small(**{key: codec}).clock.ledger.totals(0)
            assert coded == plain | {hop: plain[hop] * (numbers + 4 * tensors) // (4 * numbers)}


def test_ledger_counts_running_statistics_that_travel():
    """BatchNorm sends a mean and a variance per channel beside the parameters, unless they stay where they are."""
    for bn, extra in (("avg_all", 2 * (3 * 32 + 3 * 64)), ("local", 0), ("groupnorm", 0)):
        made = small(model="shallow", clients=2, cells=1, bn=bn)
        assert made.clock.ledger.cell_bytes(0)[0] == 4 * (shallow(bn).parameters + extra)


def test_running_statistics_are_sent_and_need_not_be_billed():
    """The papers' M counts trainable parameters: so billed, BatchNorm takes the time of GroupNorm and sends more."""
    keys = {"model": "shallow", "clients": 4, "cells": 2, "device_spread": 1.0, "cycles_per_bit": 20.0}
    for algorithm in ("hierfavg", "fedavg", "sdfeel", "hiersfl"):
        sent, billed = (small(algorithm=algorithm, billed=b, **keys).clock for b in ("sent", "trainable"))
        plain = small(algorithm=algorithm, bn="groupnorm", **keys).clock
        seconds = [clock.advance(clock.start, 0).max() for clock in (billed, plain, sent)]
        assert seconds[0] == pytest.approx(seconds[1], rel=1e-12)
        assert seconds[2] > seconds[1]
        assert billed.ledger.totals(0) == sent.ledger.totals(0) != plain.ledger.totals(0)


def test_hierfavg_makes_130_iterations_on_cifar10_if_parameters_are_billed():
    """10,000 s cover 13.004 rounds of 769.002 s; with running statistics, 0.09 % more bits, 12.993."""
    keys = {"algorithm": "hierfavg", "clients": 10, "cells": 10, "local_steps": 5, "edge_rounds": 2, "batch": 10,
            "model": "resnet18", "data": "custom", "budget_seconds": 10_000}  # fmt: skip
    dataset = toy((32, 32, 3), classes=10)
    for billed, rounds in (("trainable", 13), ("sent", 12)):
        assert Costs(experiment(Config.of(keys | {"billed": billed}), dataset)).rounds == rounds


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


def walk(made, most=50):
    """Go round by round, as the loop does, and return what was spent after each."""
    costs, spent = Costs(made), []
    while costs.more(len(spent)):
        spent.append(costs.after(len(spent) + 1))
        assert len(spent) < most
    return costs, spent


def test_a_budget_decides_the_rounds():
    one = Costs(small(algorithm="hierfavg", rounds=1)).after(1)
    total = sum(one.sent.values())
    for keys, rounds in [
        ({"budget_seconds": 7.5 * one.seconds}, 7),
        ({"budget_seconds": 7 * one.seconds}, 7),
        ({"budget_bytes": 3 * total}, 3),
        ({"budget_seconds": 7.5 * one.seconds, "budget_bytes": 3 * total}, 3),
        ({"budget_seconds": 7.5 * one.seconds, "rounds": 2}, 2),
        ({}, 30),
    ]:
        costs, spent = walk(small(algorithm="hierfavg", **keys))
        assert costs.rounds == costs.last() == len(spent) == rounds
    with pytest.raises(ConfigError, match=r"budget_bytes=10 does not cover one global round, which takes"):
        Costs(small(algorithm="hierfavg", budget_bytes=10))


@pytest.mark.parametrize(
    "keys",
    [
        {"algorithm": "hierfavg", "straggle": 1.0},
        {"algorithm": "fedavg", "device_spread": 0.5, "participation": 0.5},
        {"algorithm": "hist", "clients": 9, "cells": 7},  # 300 units over 7 cells: a mask decides what is sent
        {"algorithm": "sdfeel", "graph": "path", "link_spread": 1.0, "gossip": 3},
    ],
    ids=str,
)
def test_a_budget_whose_end_shows_as_the_run_goes(keys):
    """Where rounds differ the last one is found when it comes, and it is the one that a walk over all rounds finds."""
    _, all_ = walk(small(**keys, rounds=9))
    costs, spent = walk(small(**keys, budget_seconds=(all_[5].seconds + all_[6].seconds) / 2))
    assert costs.rounds is None
    assert spent == all_[:6]
    assert (costs.until(0, 4), costs.until(4, 4), costs.until(0, 100)) == (4, 6, 6)
    assert costs.last() == 6
    assert len(walk(small(**keys, budget_seconds=1e9, rounds=5))[1]) == 5


def test_costs_can_be_asked_in_any_order_and_hold_what_the_links_carried():
    for keys in ({"participation": 0.5}, {}, {"algorithm": "sdfeel", "gossip": 2}):
        made = small(**keys, rounds=300)
        costs, other = Costs(made), Costs(made)
        late = costs.after(200)
        assert costs.after(3) == other.after(3)
        assert other.after(200) == late
        links = costs.links(5)
        sent = [made.clock.ledger.round(n) for n in range(5)]
        for tier, total in costs.after(5).sent.items():
            assert links[tier]["total"] == total
            assert links[tier]["links"] == sum(each[tier] for each in sent).tolist()


def test_totals_need_no_draw(monkeypatch):
    """They are those of the rounds that are drawn, tier by tier."""
    for keys in ({"algorithm": "fedavg"}, {"algorithm": "hiersfl", "cut": "hidden"}, {"algorithm": "hist"}):
        ledger = small(**keys, clients=9, cells=2, participation=0.4).clock.ledger
        assert [ledger.totals(n) for n in (0, 4)] == [totals(ledger.round(n)) for n in (0, 4)]
    for keys in ({"algorithm": "mtgc"}, {"prox": 0.1, "prox_anchor": "cloud"}):  # sent once to each that takes part
        ledger = small(**keys, clients=9, cells=2, participation=0.4).clock.ledger
        assert ledger.client_bytes(0).once.all()
        assert [ledger.totals(n) for n in (0, 4)] == [totals(ledger.round(n)) for n in (0, 4)]
    monkeypatch.setattr("fedge.cost.ledger.draw_participants", None)
    made = small(participation=0.5, rounds=10**7, budget_bytes=1e20)
    assert Costs(made).rounds == 10**7


@pytest.mark.parametrize(
    "keys",
    [
        {"rounds": 10**8},
        {"budget_seconds": 1e6},
        {"rounds": 10**8, "budget_seconds": 1e9, "straggle": 0.5},
        {"algorithm": "sdfeel", "gossip": 10**5},
        {"edge_rounds": 10**5, "rounds": 2},
    ],
    ids=str,
)
def test_nothing_long_is_reckoned_before_the_first_round(keys, monkeypatch):
    advanced = []
    monkeypatch.setattr(Clock, "advance", lambda self, ready, index, was=Clock.advance: (
        advanced.append(index), was(self, ready, index))[1])  # fmt: skip
    made = small(**keys)
    costs = Costs(made)
    assert costs.more(0)
    assert costs.until(0, 5) == (2 if "edge_rounds" in keys else 5)
    assert len(advanced) <= 6


def test_a_budget_of_more_rounds_than_can_be_counted():
    with pytest.raises(ConfigError, match=r"budget_seconds=1e\+12 covers .* more than the 357913941 that can be"):
        Costs(small(budget_seconds=1e12))


@pytest.mark.parametrize("limit", ["ge", "le"])
def test_seconds_stay_numbers_at_the_limits_of_every_rate(limit):
    rates = ("cpu_hz", "edge_hz", "uplink_bps", "edge_bps", "cloud_bps", "cycles_per_bit", "device_spread",
             "link_spread", "straggle")  # fmt: skip
    ends = {
        key: next(getattr(m, limit) for m in Config.model_fields[key].metadata if hasattr(m, limit)) for key in rates
    }
    for algorithm in ({"algorithm": "hiersfl", "cut": "hidden"}, {"algorithm": "sdfeel", "gossip": 100}):
        slow = Costs(small(**algorithm, **ends, batch=10**6, local_steps=10**6)).after(3)
        assert 0 < slow.seconds < 1e200
        assert all(size > 0 for size in slow.sent.values())


def test_gossip_between_edges_in_step_is_what_each_exchange_gives():
    made = small(algorithm="sdfeel", graph="path", gossip=5, clients=4, cells=4)
    clock = made.clock
    together = clock.advance(clock.start, 0)
    ready = dataclasses.replace(clock, ledger=small(algorithm="sdfeel", graph="path", gossip=0, clients=4, cells=4)
                                .clock.ledger).advance(clock.start, 0)  # fmt: skip
    for _ in range(5):
        ready = clock._exchange(ready, 8.0 * clock.ledger.cell_bytes(0) / clock.rates.edge_bps)
    np.testing.assert_array_equal(together, ready)


# A split model

# A round takes τ2·[τ1·(φ·t_c + (1 − φ)·t_c + 2·32·a·b/R) + 32·M_c/R] + t_cloud: a activations at the cut, batch b = 10,
# M_c parameters at the client and φ its share of the work; t_c, R and t_cloud are SD-FEEL's.
SPLIT = [  # cut, a, M_c, φ, round seconds, K in 40 or 10,000 s
    ("mnist", "cnn", 1, "pool1", 1440, 260, 0.300, 2.0490, 95),
    ("mnist", "cnn", 1, "pool2", 320, 5_280, 0.966, 1.4455, 135),
    ("cifar10", "resnet18", 2, "layer1", 65_536, 149_824, 0.275, 718.6, 130),
    ("cifar10", "resnet18", 2, "layer2", 32_768, 675_392, 0.517, 687.5, 140),
    ("cifar10", "resnet18", 2, "layer3", 16_384, 2_775_104, 0.758, 692.7, 140),
]


@cache
def table(data, model, rounds):
    keys = {"algorithm": "hiersfl", "data": data, "model": model, "local_steps": 5, "edge_rounds": rounds}
    return cut_prices(Config.of(keys))


@pytest.mark.parametrize(("data", "model", "rounds", "cut", "activations", "own", "work", "seconds", "k"), SPLIT)
def test_the_table_of_cuts(data, model, rounds, cut, activations, own, work, seconds, k):
    prices = {p.place.name: p for p in table(data, model, rounds)}
    here = prices[cut]
    assert (here.place.activations, here.place.client_parameters) == (activations, own)
    assert here.place.client_work == pytest.approx(work, abs=5e-4)
    assert here.round_seconds == pytest.approx(seconds, rel=1e-4)
    assert 5 * rounds * int((40 if data == "mnist" else 10_000) / here.round_seconds) == k
    assert prices["top"].round_seconds == pytest.approx(
        rounds * (5 * here.rates.step_seconds + 32 * here.parameters / here.rates.uplink_bps)
        + 320 * here.parameters / SHANNON
    )
    for each in prices.values():  # τ1·b·a + M_c < M, in bits
        place = each.place
        fewer = 5 * 10 * place.activations * place.bits + 32 * place.client_parameters < 32 * each.parameters
        assert (each.upload_bits < each.whole_bits) == fewer


@pytest.mark.parametrize("cut", ["0", "pool1", "pool2", "fc1", "top"])
def test_ledger_and_clock_of_a_split_run_are_the_closed_form(cut):
    keys = {"algorithm": "hiersfl", "model": "cnn", "cut": cut, "clients": 6, "cells": 3, "partition": "iid",
            "local_steps": 5, "edge_rounds": 2, "batch": 10, "edge_hz": 8e9, "data": "fashion-mini"}  # fmt: skip
    made = experiment(Config.of(keys))
    price = next(p for p in cut_prices(made.config) if p.place.name == cut)
    links = made.clock.ledger.round(0)
    assert (links["client_to_edge"] * 8 == price.upload_bits).all()
    back = price.upload_bits - (2 * 5 * 10 * price.place.activations * 8 if cut == "0" else 0)
    assert (links["edge_to_client"] * 8 == back).all()
    assert (links["edge_to_cloud"] == 4 * made.model.parameters).all()
    assert cut == "top" or (links["labels_to_edge"] == 2 * 5 * 10 * 4).all()
    assert made.clock.advance(made.clock.start, 0).max() == pytest.approx(price.round_seconds, rel=1e-9)


def test_a_split_cell_waits_for_its_slowest_client_at_every_step():
    """Followed event by event: activations up, the edge's work, gradients down, for each step; then the upload."""
    keys = {"algorithm": "hiersfl", "model": "cnn", "cut": "pool2", "clients": 4, "cells": 1, "partition": "iid",
            "local_steps": 3, "edge_rounds": 1, "device_spread": 0.5, "link_spread": 0.7, "straggle": 0.3}  # fmt: skip
    made = experiment(Config.of(keys))
    clock, rates, cut = made.clock, made.clock.rates, made.clock.ledger.cut
    device, link, backhaul, _ = clock.slowness
    late = 1 + rates.straggle * host_rng(0, Purpose.DELAY, 1).standard_exponential(4)
    ready, edge = np.zeros(4), 0.0
    for _ in range(3):
        arrived = ready + cut.client_work * rates.step_seconds * device * late + 8 * cut.up / rates.uplink_bps * link
        edge = arrived.max() + (1 - cut.client_work) * rates.step_seconds
        ready = edge + 8 * cut.down / rates.uplink_bps * link
    own, whole = (8 * clock.ledger.cell_bytes(0, client=c)[0] for c in (True, False))
    done = (ready + own / rates.uplink_bps * link).max() + whole / rates.cloud_bps * backhaul[0]
    assert clock.advance(clock.start, 0)[0] == pytest.approx(done, rel=1e-12)


def test_the_command_of_table_1_ends_at_1440_iterations():
    """As priced before any training, on images of MNIST's shape: 288 rounds, and bytes equal to the formula."""
    keys = {"algorithm": "sdfeel", "clients": 50, "cells": 10, "graph": "bipartite", "local_steps": 5, "edge_rounds": 1,
            "gossip": 1, "partition": "one_class", "model": "cnn", "budget_seconds": 40}  # fmt: skip
    costs = Costs(experiment(Config.of(keys)))
    assert costs.rounds == 288
    assert 5 * costs.rounds == 1440
    assert costs.after(288).seconds == pytest.approx(288 * 0.13866, rel=1e-4)
    assert costs.after(288).sent == dict.fromkeys(
        ("client_to_edge", "edge_to_client", "edge_to_edge"), 288 * 50 * 4 * CNN
    )


def test_sdfeel_with_unequal_devices_followed_by_hand():
    """Each edge waits for its slowest client in every edge round, then for its neighbours at each exchange."""
    keys = {"algorithm": "sdfeel", "graph": "path", "gossip": 2, "clients": 6, "cells": 3, "partition": "iid",
            "local_steps": 2, "edge_rounds": 2, "device_spread": 0.5, "link_spread": 0.7, "straggle": 0.3}  # fmt: skip
    made = experiment(Config.of(keys))
    clock, rates, roster = made.clock, made.clock.rates, made.job.algorithm.topology.roster
    device, link, _, between = clock.slowness
    bits = 8 * clock.ledger.cell_bytes(0)[0]
    ready = np.zeros(3)
    for a in range(2):
        late = 1 + rates.straggle * host_rng(0, Purpose.DELAY, a + 1).standard_exponential(6)
        for d, own in enumerate(roster):
            ready[d] += max(
                2 * rates.step_seconds * device[i] * late[i] + bits / rates.uplink_bps * link[i] for i in own
            )
    for _ in range(2):
        arrive = {(a, b): ready[a] + bits / rates.edge_bps * between[a, b] for a, b in [(0, 1), (1, 0), (1, 2), (2, 1)]}
        ready = np.array([max([ready[d], *(t for (_, b), t in arrive.items() if b == d)]) for d in range(3)])
    np.testing.assert_allclose(clock.advance(clock.start, 0), ready, rtol=1e-12)


def test_the_table_of_cuts_for_a_users_own_model():
    class Chain(nnx.Module):
        stages: ClassVar = {"low": ("fc1",), "high": ("fc2",)}

        def __init__(self, rngs):
            self.fc1, self.fc2 = nnx.Linear(25, 8, rngs=rngs), nnx.Linear(8, 4, rngs=rngs)

        def stage(self, name, x):
            return nnx.relu(self.fc1(x.reshape(len(x), -1))) if name == "low" else self.fc2(x)

        def __call__(self, x):
            return self.stage("high", self.stage("low", x))

    model = from_nnx(Chain, input_shape=(5, 5, 1), classes=4)
    table = cuts.prices(model, 2, Schedule(3, 4), Rates(1e-3))
    assert [(p.place.name, p.place.activations, p.place.client_parameters) for p in table] == [
        ("0", 25, 0), ("low", 8, 208), ("top", 0, 244)]  # fmt: skip
    assert table[1].place.client_work == 200 / 232
    assert table[1].upload_bits == 4 * 32 * (3 * 2 * 8 + 208)
    assert table[1].whole_bits == 4 * 32 * 244
