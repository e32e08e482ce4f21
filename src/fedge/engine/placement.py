"""A device holds only the samples of clients that may train on it.

In a run of one process the cores of a CPU share its memory, so there nothing is moved: each reads the samples where
they are, which may be a file (`data.sources`) of which only what is read takes memory.

The slots of an edge round are shared out to the devices in order. With full participation a slot is a client; with
less, any client of its cell, so the device needs the whole cell. A process builds only what lies on its own devices.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding
from numpy.typing import NDArray

from fedge.core.client import Data
from fedge.engine.mesh import BY_DEVICE, place

Clients = NDArray[np.int32]
SMALL = 2**25  # bytes: less is given room for all samples on every device, so that any partition fits one program


def clients_by_cell(ids: Sequence[int], roster: list[Clients], devices: int) -> list[Clients]:
    """Return the clients of each device where whole cells, in order, are shared out to them."""
    each = -(-len(ids) // devices)
    return [_union([roster[d] for d in ids[each * j : each * (j + 1)]]) for j in range(devices)]


def clients_by_slot(
    ids: Sequence[int], active: list[int], drawn: bool, roster: list[Clients], devices: int, chunk: int
) -> list[Clients]:
    """Return the clients of each device where slots, `active` of them in each cell, are shared out in chunks.

    Slots beyond the last one repeat it, so their device also needs the clients that the last slot may be given to.
    """
    each = -(-sum(active) // (devices * chunk)) * chunk
    ends = np.cumsum(active)
    found = []
    for j in range(devices):
        low, high = each * j, min(each * (j + 1), int(ends[-1]))
        own = []
        for d, n, end in zip(ids, active, ends, strict=True):
            first, last = max(low, int(end) - n), min(high, int(end))
            if first < last:
                own.append(roster[d] if drawn else roster[d][first - end + n : last - end + n])
        if each * (j + 1) > ends[-1]:
            own.append(roster[ids[-1]] if drawn else roster[ids[-1]][-1:])
        found.append(_union(own))
    return found


def _union(parts: list[Clients]) -> Clients:
    return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int32)


def distribute(data: Data, residents: list[Clients], mesh: Mesh) -> Data:
    """Give `data` a leading axis of devices; each holds its residents' samples, and valid indices for anyone else."""
    if len(residents) == 1:
        return place(for_one_device(data), mesh, BY_DEVICE)
    start, size, order = (np.asarray(a) for a in (data.start, data.size, data.order))
    held = [int(size[clients].sum()) for clients in residents]
    everything = len(residents) * (data.x.nbytes + order.nbytes)
    indices = len(order) if everything < SMALL else _room(max(held), len(order), len(residents))
    samples = min(indices, len(data.x))

    def part(j: int) -> Data:
        clients = residents[j]
        n = size[clients]
        begin = np.cumsum(n) - n
        own = order[np.repeat(start[clients] - begin, n) + np.arange(held[j])]
        kept, position = np.unique(own, return_inverse=True)
        starts, sizes = np.zeros_like(start), np.ones_like(size)
        starts[clients], sizes[clients] = begin, n
        return Data(
            x=_pad_rows(data.x, kept, samples),
            y=_pad_rows(data.y, kept, samples),
            order=np.pad(position.astype(np.int32), (0, indices - held[j])),
            start=starts,
            size=sizes,
        )

    held_here = [(j, d) for j, d in enumerate(mesh.devices.flat) if d.process_index == jax.process_index()]
    shards = [jax.device_put(Data(*(a[None] for a in part(j))), d) for j, d in held_here]  # one at a time on the host
    _release(data.x)
    return _assemble(shards, mesh)


def _release(samples: Any) -> None:
    """Let go of what was read from a mapped file: it lies on the devices now and need not stay in memory."""
    for array in (samples, getattr(samples, "base", None)):
        if isinstance(array, np.memmap) and array.mode == "r" and hasattr(mmap, "MADV_DONTNEED"):
            array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


def share(data: Data, mesh: Mesh) -> Data:
    """Give `data` a leading axis of devices that are cores of this host and read the same memory."""
    aligned = Data(*map(_align, for_one_device(data)))
    return _assemble([jax.device_put(aligned, device) for device in mesh.devices.flat], mesh)


def _assemble(shards: list[Data], mesh: Mesh) -> Data:
    def assemble(*each: Array) -> Array:
        shape, sharding = (mesh.size, *each[0].shape[1:]), NamedSharding(mesh, BY_DEVICE)
        return jax.make_array_from_single_device_arrays(shape, sharding, list(each))

    return Data(*map(assemble, *shards))


def _align(values: NDArray[Any]) -> NDArray[Any]:
    """Copy to a multiple of 64 bytes what does not lie on one: JAX then reads it without a copy of its own."""
    if values.ctypes.data % 64 == 0 and values.flags.c_contiguous:
        return values
    room = np.empty(values.nbytes + 64, np.uint8)
    begin = -room.ctypes.data % 64
    found = room[begin : begin + values.nbytes].view(values.dtype).reshape(values.shape)
    found[...] = values
    return found


def for_one_device(data: Data) -> Data:
    """Give `data` a leading axis for the only device."""
    return Data(*(np.asarray(a, jax.dtypes.canonicalize_dtype(a.dtype))[None] for a in data))


def _pad_rows(rows: Any, kept: NDArray[Any], length: int) -> Any:
    """Take these rows and, up to a length, the first one over and over; copy nothing where that is all of them."""
    if len(kept) < length or len(kept) < len(rows):
        rows = rows[np.concatenate([kept, np.zeros(length - len(kept), kept.dtype)])]
    return np.asarray(rows, jax.dtypes.canonicalize_dtype(rows.dtype))


def _room(most: int, total: int, devices: int) -> int:
    """Round up to steps of a quarter of a device's even share: other seeds then mostly fit into the same program."""
    step = max(1, -(-total // (4 * devices)))
    return min(-(-most // step) * step, total)
