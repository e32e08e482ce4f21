"""A compiled round reads these inputs besides the state, and draws from them who trains in an edge round.

Shape legend: C clients, K slots (client turns in an edge round), D cells of a stack.
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
from fedge.core.tree import Weights
from fedge.engine.base import Job
from fedge.engine.mesh import BY_DEVICE, REPLICATED


class SlotTable(NamedTuple):
    """This is what is known of a stack's slots before any draw, with one entry per slot."""

    cell: Any  # position in the stack
    id: Any  # the cell's own number
    rank: Any  # 0, 1, … within the cell
    start: Any  # where the cell begins in the roster
    size: Any  # its clients


class Inputs(NamedTuple):
    """A compiled round reads all of this besides the state and its number."""

    key: Any
    lr: Any
    data: Any  # Data along a leading axis, each device's
    tables: Any  # a SlotTable for each stack of cells
    roster: Any  # C: client ids, cell after cell
    weight: Any  # C: m
    cell_weight: Any  # all cells: m̃
    constants: Any  # the algorithm's


class Slots(NamedTuple):
    """This says who trains in an edge round, slot by slot; a padding slot has share 0."""

    client: Array  # K
    cell: Array  # K: position in the stack
    share: Array  # K: m_i over the participating weight of its cell


class Cells(NamedTuple):
    """This is a stack of cells in an edge round, or one cell of it: what clients are handed."""

    weights: Weights
    mask: Weights | None
    origin: Weights | None  # the models they began the global round with, where clients need them


INPUT_SPECS = Inputs(
    key=REPLICATED,
    lr=REPLICATED,
    data=BY_DEVICE,
    tables=REPLICATED,
    roster=REPLICATED,
    weight=REPLICATED,
    cell_weight=REPLICATED,
    constants=REPLICATED,
)


def host_inputs(job: Job, stacks: Sequence[tuple[int, ...]]) -> Inputs:
    """Collect on the host what rounds of a job read, except data; `stacks` names the cells of each stack."""
    topology, dtype = job.algorithm.topology, job.task.dtype
    sizes = [len(r) for r in topology.roster]
    return Inputs(
        key=job.key,
        lr=np.asarray(job.lr, dtype),
        data=None,
        tables=tuple(slot_table(ids, sizes, job.participation) for ids in stacks),
        roster=np.concatenate(topology.roster),
        weight=topology.weight.astype(dtype),
        cell_weight=topology.cell_weight.astype(dtype),
        constants=jax.tree.map(
            lambda x: x.astype(dtype) if np.issubdtype(x.dtype, np.floating) else x, job.algorithm.constants
        ),
    )


def slot_table(ids: tuple[int, ...], sizes: list[int], participation: float) -> SlotTable:
    starts = np.cumsum([0, *sizes])
    active = [participants(sizes[d], participation) for d in ids]

    def per_slot(values: Sequence[int]) -> NDArray[np.int32]:
        return np.repeat(np.array(values, np.int32), active)

    return SlotTable(
        cell=per_slot(range(len(ids))),
        id=per_slot(ids),
        rank=np.concatenate([np.arange(n, dtype=np.int32) for n in active]),
        start=per_slot([int(starts[d]) for d in ids]),
        size=per_slot([sizes[d] for d in ids]),
    )


def own_samples(inputs: Inputs) -> Inputs:
    """Take the leading axis of devices off the data: what one device sees of the inputs."""
    return inputs._replace(data=Data(*(a[0] for a in inputs.data)))


def draw_slots(cells: int, table: SlotTable, number: Array, inputs: Inputs, participation: float, pad_to: int) -> Slots:
    """Draw the slots of edge round `number` in a stack of so many cells, filled up to a multiple of `pad_to`."""
    rank = table.rank
    if participation < 1:

        def draw(cell: Array, rank: Array, size: Array) -> Array:
            return permute(fold(inputs.key, Purpose.PARTICIPATION, cell), number, rank, size)

        rank = jax.vmap(draw)(table.id, table.rank, table.size)
    client = inputs.roster[table.start + rank]
    weight = inputs.weight[client]
    share = weight / jax.ops.segment_sum(weight, table.cell, cells)[table.cell]
    missing = -len(table.cell) % pad_to
    filled = [jnp.concatenate([x, jnp.repeat(x[-1:], missing)]) for x in (client, table.cell)]
    return Slots(filled[0], filled[1], jnp.pad(share, (0, missing)))


def cell_grid(active: list[int], share: Array) -> tuple[NDArray[np.int64], Array]:
    """Return, as cells × the most clients of one, slots and their shares; short rows are filled with share 0."""
    row = np.array(active)
    take = np.cumsum([0, *row[:-1]])[:, None] + np.arange(row.max())
    real = np.arange(row.max()) < row[:, None]
    grid = np.where(real, take, take[:, :1])
    return grid, jnp.where(real, share[grid], 0)
