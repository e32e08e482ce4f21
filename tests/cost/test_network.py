"""A network as measured is held against the closed form, an example worked by hand, and laws of sharing."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.topology import Topology
from fedge.cost.availability import Availability
from fedge.cost.network import Both, Client, Edge, Network, Processor
from fedge.cost.network_clock import NetworkClock, Steps, as_network
from fedge.cost.path import Path
from fedge.cost.waits import Waits
from tests.helpers import small

FIVE = ("fedavg", "hierfavg", "hist", "hiersfl", "sdfeel")


@cache
def made(algorithm, **keys):
    own = {"sdfeel": {"graph": "path", "gossip": 2}, "hiersfl": {"cut": "hidden"}}.get(algorithm, {})
    return small(algorithm=algorithm, **own, **keys)


def both(algorithm, **rates):
    clock = replace(made(algorithm).clock, rates=replace(made(algorithm).clock.rates, **rates))
    return clock, as_network(clock)


def walk(clock, rounds=2):
    waits = Waits.of(clock.ledger.algorithm.topology.clients, clock.ledger.algorithm.topology.cells)
    ready = clock.start
    for index in range(rounds):
        ready = clock.advance(ready, index, waits)
    return ready, waits


@pytest.mark.parametrize("algorithm", FIVE)
def test_equal_devices_without_contention_take_the_closed_form(algorithm):
    """Where downlinks take time an edge with a smaller submodel (HIST) has it sooner; the last one counts."""
    for downlink in (False, True):
        clock, network = both(algorithm, downlink=downlink)
        assert clock.equal
        np.testing.assert_allclose(walk(network)[0].max(), walk(clock)[0].max(), rtol=1e-9)


@pytest.mark.parametrize("algorithm", FIVE[:4])
def test_unequal_devices_without_contention_take_what_the_other_clock_says(algorithm):
    clock, network = both(algorithm, device_spread=1.0, straggle=2.0, link_spread=1.0, step_seconds=0.05)
    (ready, waits), (same, told) = walk(clock), walk(network)
    np.testing.assert_allclose(same, ready, rtol=1e-9)
    for name in ("client_busy", "client_waits", "client_last", "edge_waits", "edge_last"):
        np.testing.assert_allclose(getattr(told, name), getattr(waits, name), rtol=1e-9, atol=1e-9)


def hand(algorithm, clients, edges, step, **more):
    ledger = made(algorithm, clients=3, cells=2, partition="iid", local_steps=2, edge_rounds=1).clock.ledger
    cell = [client.cell for client in clients]
    whole = replace(ledger.algorithm, topology=Topology.of(cell, np.ones(3)))
    one = replace(whole, topology=whole.topology.one_cell()) if algorithm == "fedavg" else whole
    network = Network("by hand", clients, edges, **more)
    return NetworkClock(replace(ledger, algorithm=one), network, Steps(np.array(step), np.zeros(2)), downlink=False)


def test_a_round_worked_by_hand():
    """A model of M bits. Clients 0 and 1 (own rates M and 2M bit/s, steps of 1 and 1.5 s) share M bit/s to edge 0;
    client 2 (M/4, steps of 0.5 s) is alone.

    HierFAVG: 0 has stepped at 2 s and sends alone until 3 s, when all of its M bits are there; then 1, which is done at
    3 s, sends alone: 4 s. Client 2: 1 + 4 = 5 s. Edges send over lines of M/2 and M and share a backhaul of 3M/4: edge
    0 from 4 s at M/2, has M/2 left at 5 s; from then on both have 3M/8, so edge 0 is there at 5 + 4/3 s with edge 1
    half done; it goes on alone at 3M/4 and takes (1/2)/(3/4) = 2/3 s more: 7 s.
    FedAvg: 0 sends from 2 s over lines of M, M/2, 3M/4: at M/2. From 3 s client 1 shares the line of M/2, each M/4.
    From 1 s client 2 sends at M/4, its own: done at 5 s, and takes nothing from the others (M/2 + M/4 fit the
    backhaul). Client 0 has M/2 left at 3 s: done at 5 s. Client 1 has half left then, and the line for itself: 6 s.
    """
    bits = float(8 * made("hierfavg", clients=3, cells=2, partition="iid", local_steps=2, edge_rounds=1)
                 .clock.ledger.cell_bytes(0)[0])  # fmt: skip
    rate = lambda share: Both(share * bits, share * bits)  # noqa: E731
    clients = tuple(
        Client(name, d, Processor(), rate(own)) for name, d, own in [("0", 0, 1), ("1", 0, 2), ("2", 1, 0.25)]
    )
    edges = (Edge("a", shared=rate(1), line=rate(0.5)), Edge("b", line=rate(1)))
    for algorithm, end in (("hierfavg", 7), ("fedavg", 6)):
        clock = hand(algorithm, clients, edges, [1, 1.5, 0.5], backhaul=rate(0.75))
        paths = [Path() for _ in clock.start]
        ready = clock.advance(clock.start, 0, None, paths)
        np.testing.assert_allclose(ready, end, rtol=1e-12)
        assert paths[0].seconds == pytest.approx(end)
        spans = {(span.who, span.does): pytest.approx(span.seconds) for span in paths[0].spans}
        if algorithm == "hierfavg":  # edge b came last: it waited for client 2, then for the backhaul
            assert spans == {("client 2", "computes"): 1, ("client 2", "sends and receives"): 4,
                             ("backhaul", "is full (up)"): 2}  # fmt: skip
        else:
            assert spans == {("client 1", "computes"): 3, ("edge a", "is full on the cloud's side (up)"): 3}


def test_an_edge_goes_on_when_its_neighbours_models_are_there_and_its_own_is_sent():
    """Path 0-1-2, ready at 10, 0 and 0 s; a model takes 1 s, from 1 to 2 it takes 5 s. First exchange: edge 0 at 11 s,
    edge 1 at 11 s (from 0), edge 2 at 5 s (from 1). Second: 0 at 12 s; 1 sends to 2 until 16 s, so 1 and 2 at 16 s."""
    made_, paths = made("sdfeel"), [Path() for _ in range(3)]
    links = dict.fromkeys([(0, 1), (1, 0), (2, 1)], 1.0) | {(1, 2): 0.2}
    clock = as_network(made_.clock)
    clock = replace(clock, network=replace(clock.network, links=links))
    first = clock._exchange(np.array([10.0, 0, 0]), np.ones(3), paths)
    np.testing.assert_array_equal(first, [11, 11, 5])
    np.testing.assert_array_equal(clock._exchange(first, np.ones(3), paths), [12, 16, 16])
    assert paths[2].spans == [("link 1 → 2", "sends", 5), ("link 0 → 1", "sends", 1)]


def test_a_client_that_is_off_is_waited_for():
    """It is on for 1 of every 10 s and needs 2 s for its steps, until 11 s; then it is off, and sends from 20 s on."""
    bits = float(8 * made("hierfavg", clients=3, cells=2, partition="iid", local_steps=2, edge_rounds=1)
                 .clock.ledger.cell_bytes(0)[0])  # fmt: skip
    off = Availability.of("it", [(0, 1)], 10)
    clients = tuple(
        Client(str(n), n % 2, Processor(), Both(bits, bits), on=off if n == 1 else None) for n in range(3)
    )  # fmt: skip
    clock = hand("hierfavg", clients, (Edge("a"), Edge("b")), [1, 1, 1], backhaul=Both(1e30, 1e30))
    np.testing.assert_allclose(clock.advance(clock.start, 0), 21)


rates = st.floats(0.05, 20)
networks = st.tuples(*[st.lists(rates, min_size=n, max_size=n) for n in (7, 3, 3, 2, 4, 7)], st.booleans())


def drawn(numbers, scale):
    own, shared, line, backhaul, links, _, off = numbers
    both = lambda up, down: Both(up * scale, down * scale)  # noqa: E731
    paused = Availability.of("it", [(0.5, 1.5), (2, 2.5)], repeat=3)
    when = {2: paused} if off else {}
    clients = tuple(
        Client(str(i), d, Processor(), both(own[i], own[-1 - i]), both(own[i - 1], own[i - 2]), on=when.get(i))
        for i, d in enumerate(made("hierfavg").topology.cell.tolist())
    )
    edges = tuple(Edge(str(d), Processor(), both(shared[d], shared[d - 1]), both(line[d], math.inf)) for d in range(3))
    return Network("drawn", clients, edges, both(*backhaul),
                   dict(zip(((0, 1), (1, 0), (1, 2), (2, 1)), (scale * r for r in links), strict=True)))  # fmt: skip


@given(st.sampled_from(FIVE), networks)
@settings(max_examples=40)
def test_no_link_carries_more_than_its_rate_and_permuting_clients_changes_nothing(algorithm, numbers):
    ledger = made(algorithm).clock.ledger
    bits = 8.0 * float(ledger.client_bytes(0).up.max())
    network, steps = drawn(numbers, bits), Steps(np.array(numbers[-2]) / 20, np.full(3, 0.1))
    clock, carried = NetworkClock(ledger, network, steps), 0.0

    def watch(net, begin, end, under_way, rate):
        nonlocal carried
        carried += float(rate.sum()) * (end - begin)
        for link, most in net.capacity.items():
            on_it = [r for f, r in zip(under_way, rate, strict=True) if link in net.all[f].links]
            assert sum(on_it) <= most * (1 + 1e-9)

    heard = replace(clock, watch=watch)
    end = heard.advance(clock.start, 0)
    np.testing.assert_allclose(clock.advance(clock.start, 0), end, rtol=1e-9)
    sent = ledger.totals(0)
    assert carried == pytest.approx(
        8 * sum(sent.values()) - 8 * sent.get("labels_to_edge", 0) - 8 * sent.get("edge_to_edge", 0)
    )

    order = np.random.default_rng(0).permutation(7)
    topology = ledger.algorithm.topology
    moved = replace(ledger.algorithm, topology=Topology(topology.cell[order], topology.weight[order]))
    again = NetworkClock(
        replace(ledger, algorithm=moved),
        replace(network, clients=tuple(network.clients[i] for i in order)),
        Steps(steps.client[order], steps.edge),
    )
    np.testing.assert_allclose(again.advance(clock.start, 0), end, rtol=1e-9)


def test_time_off_is_told_from_time_on_a_link():
    """As above: of 21 s the client is off for 9 + 9, computes for 2 and sends for 1; then nothing takes time."""
    bits = float(8 * made("hierfavg", clients=3, cells=2, partition="iid", local_steps=2, edge_rounds=1)
                 .clock.ledger.cell_bytes(0)[0])  # fmt: skip
    off = Availability.of("it", [(0, 1)], 10)
    clients = tuple(Client(str(n), n % 2, Processor(), Both(bits, bits), on={1: off}.get(n)) for n in range(3))
    clock = hand("hierfavg", clients, (Edge("a"), Edge("b")), [1, 1, 1], backhaul=Both(1e30, 1e30))
    paths = [Path() for _ in clock.start]
    clock.advance(clock.start, 0, None, paths)
    spans = {span.does: span.seconds for span in paths[0].spans if span.who == "client 1"}
    assert spans == {"is off": pytest.approx(18), "computes": pytest.approx(2), "sends and receives": pytest.approx(1)}


def test_another_network_is_reckoned_anew():
    """What a clock remembers of its network is not true of one with half its rates."""
    clock = as_network(made("hierfavg").clock)
    one = clock.advance(clock.start, 0)
    slow = tuple(
        replace(client, rate=Both(client.rate.up / 2, client.rate.down / 2)) for client in clock.network.clients
    )
    other = replace(clock, network=replace(clock.network, clients=slow))
    assert (other.advance(clock.start, 0) > 1.1 * one).all()
