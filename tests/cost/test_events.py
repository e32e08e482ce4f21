"""Fair sharing is held against an example worked by hand, against brute force in small steps, and against its laws."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.cost.availability import Availability
from fedge.cost.events import Activities, limit_of
from fedge.cost.sharing import fair_shares
from fedge.errors import ConfigError


def test_shares_worked_by_hand():
    """Link 0 carries 10, link 1 carries 6. Transfers: 0 and 1 over link 0 (the first with a link of its own of 1), 2
    over both, 3 and 4 over link 1. Raise all: at 1 transfer 0 is at its own limit; at 2 link 1 is full (3 × 2), so 2, 3
    and 4 stay; transfer 1 takes what link 0 has left, 10 − 1 − 2 = 7."""
    own, routes = np.array([1, 9, 9, 9, 9.0]), np.array([[0, 2], [0, 2], [0, 1], [1, 2], [1, 2]])
    shares = fair_shares(own, routes, np.array([10, 6, math.inf]))
    np.testing.assert_allclose(shares.rate, [1, 7, 2, 2, 2], rtol=1e-15)
    np.testing.assert_array_equal(shares.held, [0, 1, 2, 1, 1])


def test_transfers_worked_by_hand():
    """Both share 10 bit/s. A sends 20 bits from 0 s, B 40 bits from 1 s. Alone A sends 10 by 1 s; then each has 5, A is
    done at 3 s and B has 30 left, which take 3 s alone: B is done at 6 s."""
    net = Activities({"link": 10.0})
    start = net.at(0.0)
    a = net.send(20, 100, ["link"], [start])
    b = net.send(40, 100, ["link"], [net.work(1.0, [start])])
    course = net.follow()
    assert (course.end[a], course.end[b]) == (3, 6)
    assert limit_of(net.all[b], course.held[b]) == "link"
    assert course.path(net.meet([a, b]) - 1)[0] == start


def test_a_device_that_is_off_neither_works_nor_sends():
    """On from 0 to 2 s of every 5 s: 3 s of work from 1 s take 1 + 2 s of it, so until 7 s; then it is off until 10 s,
    sends 20 bits at 10 bit/s, and is done at 12 s. Meanwhile another has the link for itself until 10 s."""
    off = Availability.of("it", [(0, 2)], repeat=5)
    net = Activities({"link": 20.0})
    worked = net.work(3.0, [net.at(1.0)], off)
    sent = net.send(20, 10, ["link"], [worked], off)
    other = net.send(220, 50, ["link"], [net.at(0.0)])
    course = net.follow()
    assert course.end[worked] == 7
    assert course.end[sent] == 12
    assert course.end[other] == pytest.approx(12)  # 20 bit/s for 10 s, and 10 bit/s for 2 s: 220 bits
    assert off.share == 0.4


def by_increments(own, routes, capacity, step=1e-3):
    """Raise all rates together in small steps, and stop each where it meets a limit."""
    rate, going = [0.0] * len(own), set(range(len(own)))
    while going:
        for f in list(going):
            full = any(sum(rate[g] for g in range(len(own)) if n in routes[g]) + step > capacity[n] for n in routes[f])
            if rate[f] + step > own[f] or full:
                going.discard(f)
        for f in going:
            rate[f] += step
    return rate


def by_small_steps(begin, bits, own, routes, capacity, on, dt=1e-3):
    left, end, now, known = list(bits), [0.0] * len(bits), 0.0, {}
    while any(x > 0 for x in left):
        here = [begin[f] <= now and (on[f] is None or on[f].state(now + dt / 2)[0]) for f in range(len(bits))]
        active = tuple(f for f in range(len(bits)) if here[f] and left[f] > 0)
        if active not in known:
            known[active] = by_increments([own[f] for f in active], [routes[f] for f in active], capacity)
        now += dt
        for f, rate in zip(active, known[active], strict=True):
            left[f] -= rate * dt
            end[f] = now
    return end


@pytest.mark.parametrize("seed", range(4))
def test_the_same_as_brute_force_in_small_steps(seed):
    rng = np.random.default_rng(seed)
    capacity = {n: float(c) for n, c in enumerate(rng.uniform(1, 4, 3))}
    own, bits, begin = rng.uniform(0.3, 3, 6), rng.uniform(0.5, 4, 6), rng.uniform(0, 2, 6).round(3)
    routes = [sorted(rng.choice(3, rng.integers(1, 4), replace=False).tolist()) for _ in range(6)]
    off = Availability.of("it", [(0.25, 1), (1.5, 2)], repeat=2.5)
    on = [off if seed % 2 and f % 2 else None for f in range(6)]  # in two of the cases half of them are off at times
    net = Activities(capacity)
    ids = [net.send(bits[f], own[f], routes[f], [net.at(begin[f])], on[f]) for f in range(6)]
    end = net.follow().end[ids]
    np.testing.assert_allclose(end, by_small_steps(begin, bits, own, routes, capacity, on), atol=0.02, rtol=5e-3)


positive = st.floats(0.1, 100)
transfers = st.lists(
    st.tuples(positive, positive, st.floats(0, 5), st.sets(st.integers(0, 2)), st.booleans()), min_size=1, max_size=7
)


@given(transfers, st.lists(positive, min_size=3, max_size=3))
@settings(deadline=None, max_examples=60)
def test_no_link_carries_more_than_its_rate_and_all_bits_arrive(flows, rates):
    capacity = dict(enumerate(rates))
    paused = Availability.of("it", [(0.5, 1.5), (2, 2.5)], repeat=3)
    net = Activities(capacity)
    ids = [net.send(b, o, sorted(r), [net.at(t)], paused if off else None) for b, o, t, r, off in flows]
    arrived = dict.fromkeys(ids, 0.0)

    def watch(start, end, under_way, rate):
        for link, most in capacity.items():
            assert sum(r for f, r in zip(under_way, rate, strict=True) if link in net.all[f].links) <= most * (1 + 1e-9)
        for f, r in zip(under_way, rate, strict=True):
            assert r <= net.all[f].rate * (1 + 1e-12)
            on = net.all[f].owner is None or net.all[f].owner.state((start + end) / 2)[0]
            assert on or r == 0
            arrived[f] += r * (end - start)
        if not any(net.all[f].owner for f in under_way):  # max-min: everyone is at a limit that is used up
            for f, r in zip(under_way, rate, strict=True):
                full = [
                    sum(x for g, x in zip(under_way, rate, strict=True) if link in net.all[g].links)
                    >= capacity[link] * (1 - 1e-9) and r >= max(
                        x for g, x in zip(under_way, rate, strict=True) if link in net.all[g].links) * (1 - 1e-9)
                    for link in net.all[f].links
                ]  # fmt: skip
                assert r >= net.all[f].rate * (1 - 1e-9) or any(full)

    course = net.follow(watch)
    for f, (bits, *_) in zip(ids, flows, strict=True):
        assert arrived[f] == pytest.approx(bits, rel=1e-6)
    order = np.random.default_rng(0).permutation(len(flows))
    again = Activities(capacity)
    moved = [again.send(b, o, sorted(r), [again.at(t)], paused if off else None)
             for b, o, t, r, off in (flows[n] for n in order)]  # fmt: skip
    np.testing.assert_allclose(again.follow().end[moved], course.end[ids][order], rtol=1e-9)


@given(st.floats(0, 50), st.floats(0.001, 30))
@settings(deadline=None)
def test_work_is_done_when_a_device_has_been_on_for_long_enough(begin, seconds):
    device = Availability.of("it", [(1, 2), (4, 6.5)], repeat=7)
    end, on, now = device.finish(begin, seconds), 0.0, begin
    while now < end:
        is_on, until = device.state(now)
        on += is_on * (min(until, end) - now)
        now = until
    assert on == pytest.approx(seconds, abs=1e-9)


@pytest.mark.parametrize(
    ("intervals", "repeat", "sentence"),
    [
        ([], math.inf, "it is never on; give at least one interval"),
        ([(2, 2)], 5, "it is on from 2 to 2 s; an interval begins at 0 or later and ends after its start"),
        ([(0, 3), (2, 4)], 5, "before the interval that ends at 3 s is over; put intervals in order"),
        ([(0, 3)], math.inf, "it is known until 3 s only; say with repeat= after how many seconds"),
        ([(0, 3)], 2, "it is known until 3 s only"),
        ([(0, math.inf)], 2, "it has an interval without an end, and repeats every 2 s; keep one of both"),
    ],
)
def test_intervals_that_cannot_be(intervals, repeat, sentence):
    with pytest.raises(ConfigError) as problem:
        Availability.of("it", intervals, repeat)
    assert sentence in str(problem.value)
