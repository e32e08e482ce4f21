"""Every device holds the samples of whoever may train on it, under indices that lead to them."""

from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.core.client import Data
from fedge.core.sampling import participants
from fedge.engine import placement
from fedge.engine.mesh import mesh_of


def rosters(sizes, rng):
    return [np.sort(part).astype(np.int32) for part in np.split(rng.permutation(sum(sizes)), np.cumsum(sizes)[:-1])]


@given(st.lists(st.integers(1, 7), min_size=1, max_size=6), st.integers(1, 5), st.integers(1, 4), st.integers(0, 99))
@settings(deadline=None, max_examples=50)
def test_each_slot_finds_its_client(sizes, devices, chunk, seed):
    rng = np.random.default_rng(seed)
    roster, fraction = rosters(sizes, rng), rng.choice([1.0, 0.9, 0.5])  # of five clients 0.9 are all, but drawn
    ids = tuple(rng.permutation(len(sizes))[: rng.integers(1, len(sizes) + 1)].tolist())
    active = [participants(sizes[d], fraction) for d in ids]
    seats = placement.clients_by_slot(ids, active, fraction < 1, roster, devices, chunk)
    total = -(-sum(active) // (devices * chunk)) * chunk * devices
    for drawn in range(3):
        order = np.concatenate([
            roster[d] if fraction == 1 else rng.permutation(roster[d])[:n] for d, n in zip(ids, active, strict=True)
        ])  # fmt: skip
        order = np.concatenate([order, np.repeat(order[-1:], total - len(order))])
        for j in range(devices):
            own = order[j * total // devices : (j + 1) * total // devices]
            assert set(own.tolist()) <= set(seats[j].tolist()), drawn
    if fraction == 1:  # and nobody lies anywhere twice, but for whom the slots beyond the last repeat
        everyone, last = sorted(np.concatenate([roster[d] for d in ids]).tolist()), int(order[-1])
        assert sorted(c for c in np.concatenate(seats).tolist() if c != last) == [c for c in everyone if c != last]


@given(st.integers(1, 7), st.integers(1, 5))
@settings(deadline=None, max_examples=20)
def test_each_cell_has_its_clients_on_one_device(cells, devices):
    roster = rosters([2] * cells, np.random.default_rng(0))
    seats = placement.clients_by_cell(tuple(range(cells)), roster, devices)
    assert len(seats) == devices
    assert sorted(np.concatenate(seats).tolist()) == list(range(2 * cells))
    for own in roster:
        assert sum(set(own.tolist()) <= set(seat.tolist()) for seat in seats) == 1


@given(st.lists(st.integers(1, 5), min_size=2, max_size=8), st.integers(0, 99), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=20)
def test_samples_keep_their_owners(sizes, seed, overlapping, small):
    """Client after client, the samples read on a device are those it owns, also where clients share samples."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement, "SMALL", 2**28 if small else 0)
        samples_keep_their_owners(sizes, seed, overlapping)


def samples_keep_their_owners(sizes, seed, overlapping):
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    order = rng.integers(0, n, n) if overlapping else rng.permutation(n)
    size = np.array(sizes, np.int32)
    data = Data(rng.random((n, 2)).astype(np.float32), rng.integers(0, 9, n).astype(np.int32),
                order.astype(np.int32), (np.cumsum(size) - size).astype(np.int32), size)  # fmt: skip
    mesh = mesh_of(0)
    seats = np.array_split(rng.permutation(len(sizes)).astype(np.int32), mesh.size)
    there = jax.tree.map(np.asarray, placement.distribute(data, seats, mesh))
    for j, clients in enumerate(seats):
        for i in range(len(sizes)):
            begin, count = there.start[j, i], there.size[j, i]
            mine = there.order[j, begin : begin + count]
            if i in clients:
                own = order[data.start[i] : data.start[i] + size[i]]
                np.testing.assert_array_equal(there.x[j, mine], data.x[own])
                np.testing.assert_array_equal(there.y[j, mine], data.y[own])
            else:
                assert count == 1  # an index that leads somewhere, for slots that do not count


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="how much of a file is in memory is known on Linux")
def test_what_was_taken_from_a_mapped_file_does_not_stay_in_memory(tmp_path):
    """A process that takes its clients' images from a file holds those, not the file."""
    np.save(tmp_path / "images.npy", np.ones((4000, 1024), np.uint8))
    x, n = np.load(tmp_path / "images.npy", mmap_mode="r"), np.arange(4000, dtype=np.int32)
    data = Data(np.asanyarray(x), n, n, n, np.ones(4000, np.int32))
    assert int(x[::2].sum()) == 2000 * 1024
    assert resident("images.npy") > 2_000_000
    there = placement.distribute(data, np.array_split(n, mesh_of(0).size), mesh_of(0))
    assert resident("images.npy") == 0
    assert there.x.sum() == there.x.size


def resident(name):
    """Return the bytes of a mapped file that are in this process's memory."""
    parts = Path("/proc/self/smaps").read_text().split(name)[1:]
    return sum(int(part.split("Rss:")[1].split()[0]) * 1024 for part in parts)


def test_the_cores_of_a_host_read_the_same_memory(tmp_path):
    """Aligned samples, also of a mapped file, are nowhere copied; others once."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.integers(0, 256, (1000, 8), np.uint8))
    x, n = np.load(tmp_path / "x.npy", mmap_mode="r"), np.arange(1001, dtype=np.int32)
    data = Data(x, n[:1000], n[1:], np.zeros(1, np.int32), np.array([1000], np.int32))
    there = placement.share(data, mesh_of(0))
    places = [shard.data.unsafe_buffer_pointer() for shard in there.x.addressable_shards]
    assert places == [x.ctypes.data] * mesh_of(0).size
    orders = {shard.data.unsafe_buffer_pointer() for shard in there.order.addressable_shards}
    assert len(orders) == 1
    for name in Data._fields:
        for own in np.asarray(getattr(there, name)):
            np.testing.assert_array_equal(own, getattr(data, name))
