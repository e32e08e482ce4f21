"""What a compiled round reads besides the state, and who trains in an edge round.

Shape legend: C clients, K slots (client turns in an edge round), D cells of a batch of equal shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from fedge.core.client import Data
from fedge.core.keys import Purpose, fold, permute
from fedge.core.sampling import participants
from fedge.engine.base import Job
from fedge.engine.mesh import EVERYWHERE, SPREAD


class Layout(NamedTuple):
    """The slots of a batch of cells as far as they are known before any draw; one entry per slot."""

    cell: Any  # position in the batch
    id: Any  # the cell's own number
    rank: Any  # 0, 1, … within the cell
    start: Any  # where the cell begins in the roster
    size: Any  # its clients


class Inputs(NamedTuple):
    """Everything a compiled round reads besides the state and its number."""

    key: Array
    lr: Any
    data: Any  # Data along a leading axis, each device's
    layouts: tuple[Layout, ...]  # of each batch of cells
    roster: Any  # C: client ids, cell after cell
    weight: Any  # C: m
    cell_weight: Any  # all cells: m̃
    constants: Any  # the algorithm's


class Slots(NamedTuple):
    """Who trains in an edge round, slot by slot; a padding slot has share 0."""

    client: Array  # K
    cell: Array  # K: position in the batch of cells
    share: Array  # K: m_i over the participating weight of its cell


PLACES = Inputs(EVERYWHERE, EVERYWHERE, SPREAD, *[EVERYWHERE] * 5)  # type: ignore[arg-type]


def arranged(job: Job, groups: list[tuple[int, ...]]) -> Inputs:
    """What rounds of a job read besides data, on the host; `groups`: the batches of cells that its algorithm deals."""
    topology, dtype = job.algorithm.topology, job.task.dtype
    sizes = [len(r) for r in topology.roster]
    return Inputs(
        key=job.key,
        lr=np.asarray(job.lr, dtype),
        data=None,
        layouts=tuple(_layout(ids, sizes, job.participation) for ids in groups),
        roster=np.concatenate(topology.roster),
        weight=topology.weight.astype(dtype),
        cell_weight=topology.cell_weight.astype(dtype),
        constants=jax.tree.map(
            lambda x: x.astype(dtype) if np.issubdtype(x.dtype, np.floating) else x, job.algorithm.constants
        ),
    )


def _layout(ids: tuple[int, ...], sizes: list[int], participation: float) -> Layout:
    starts = np.cumsum([0, *sizes])
    active = [participants(sizes[d], participation) for d in ids]

    def spread(values: Sequence[int]) -> NDArray[np.int32]:
        return np.repeat(np.array(values, np.int32), active)

    return Layout(
        cell=spread(range(len(ids))),
        id=spread(ids),
        rank=np.concatenate([np.arange(n, dtype=np.int32) for n in active]),
        start=spread([int(starts[d]) for d in ids]),
        size=spread([sizes[d] for d in ids]),
    )


def own(inputs: Inputs) -> Inputs:
    """What a device sees of the inputs: its own samples."""
    return inputs._replace(data=Data(*(a[0] for a in inputs.data)))


def taken(count: int, layout: Layout, number: Array, inputs: Inputs, participation: float, pad_to: int) -> Slots:
    """The slots of edge round `number` in a batch of `count` cells, filled up to a multiple of `pad_to`."""
    rank = layout.rank
    if participation < 1:

        def draw(cell: Array, rank: Array, size: Array) -> Array:
            return permute(fold(inputs.key, Purpose.PARTICIPATION, cell), number, rank, size)

        rank = jax.vmap(draw)(layout.id, layout.rank, layout.size)
    client = inputs.roster[layout.start + rank]
    weight = inputs.weight[client]
    share = weight / jax.ops.segment_sum(weight, layout.cell, count)[layout.cell]
    missing = -len(layout.cell) % pad_to
    filled = [jnp.concatenate([x, jnp.repeat(x[-1:], missing)]) for x in (client, layout.cell)]
    return Slots(filled[0], filled[1], jnp.pad(share, (0, missing)))
