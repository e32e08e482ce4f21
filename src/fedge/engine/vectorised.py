"""The fast engine: one compiled program for any number of global rounds.

Clients are independent between edge averages, so they are spread over the devices, taken in chunks (side by side under
`vmap`, or one at a time, which is what a CPU core likes), and each result is folded at once into its cell's running
weighted sum. A device needs chunk × model + cells × model, whatever the number of clients. Where a cell shares a part
of its model (`Algorithm.shared`), its clients advance in lockstep instead, and cells are spread over the devices.

Nothing that varies between runs of one shape (seed, learning rate, partition, weights) is compiled in.

Shape legend: K slots (client turns in an edge round), D cells of a batch of equal shapes, B batch.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import NamedSharding
from numpy.typing import NDArray

from fedge.core import tree
from fedge.core.client import Data
from fedge.core.contract import Cells, Round, State
from fedge.core.keys import Purpose, fold, permute
from fedge.core.sampling import participants
from fedge.core.tree import Weights
from fedge.engine.base import Engine, Job
from fedge.engine.lockstep import LOCKSTEP, Cell
from fedge.engine.mesh import AXIS, EVERYWHERE, SPREAD, mesh_of


class Inputs(NamedTuple):
    """Everything a compiled round reads besides the state and its number."""

    key: Array
    lr: Array
    data: Data
    roster: Array  # C: client ids, cell after cell
    weight: Array  # C: m
    cell_weight: Array  # all cells: m̃
    constants: Any  # the algorithm's


class Slots(NamedTuple):
    """Who trains in an edge round, slot by slot; a padding slot has share 0."""

    client: Array  # K
    cell: Array  # K: position in the batch of cells
    share: Array  # K: m_i over the participating weight of its cell


class Vectorised(Engine):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._mesh = mesh_of(job.devices)
        self._program: Any = None
        self.retarget(job)

    def retarget(self, job: Job) -> None:
        """Go on with another job of the same shape (another seed, learning rate or partition) without compiling."""
        self.job = job
        topology, dtype = job.algorithm.topology, job.task.dtype
        inputs = Inputs(
            key=job.key,
            lr=jnp.asarray(job.lr, dtype),
            data=job.data,
            roster=jnp.asarray(np.concatenate(topology.roster)),
            weight=jnp.asarray(topology.weight, dtype),
            cell_weight=jnp.asarray(topology.cell_weight, dtype),
            constants=jax.tree.map(lambda x: jnp.asarray(x, dtype), job.algorithm.constants),
        )
        self._inputs: Inputs = jax.device_put(inputs, NamedSharding(self._mesh, EVERYWHERE))

    def rounds(self, state: State, first: int, count: int) -> tuple[State, float]:
        everywhere = NamedSharding(self._mesh, EVERYWHERE)
        state = jax.device_put(state, everywhere)
        span = jax.device_put((jnp.int32(first), jnp.int32(first + count)), everywhere)
        if self._program is None:
            began = time.perf_counter()
            self._program = jax.jit(self._rounds, out_shardings=everywhere).lower(state, span, self._inputs).compile()
            self.compile_seconds = time.perf_counter() - began
        state, loss = self._program(state, span, self._inputs)
        return state, float(loss)

    def _rounds(self, state: State, span: tuple[Array, Array], inputs: Inputs) -> tuple[State, Array]:
        """One program for any number of rounds: the host is not asked in between."""

        def body(index: Array, carry: tuple[State, Array]) -> tuple[State, Array]:
            return self._round(carry[0], index, inputs)

        return lax.fori_loop(*span, body, (state, jnp.zeros((), self.job.task.dtype)))

    def _round(self, state: State, index: Array, inputs: Inputs) -> tuple[State, Array]:
        algorithm, schedule = self.job.algorithm, self.job.algorithm.schedule
        key = fold(inputs.key, Purpose.ALGORITHM, index)
        now = Round(index, key, inputs.cell_weight, inputs.constants)
        dealt = algorithm.deal(state, now)
        train = self._independent if algorithm.shared is None else self._lockstep

        def edge_round(models: tuple[Weights, ...], a: Array) -> tuple[tuple[Weights, ...], Array]:
            number = index * schedule.edge_rounds + a
            loss = jnp.zeros((), self.job.task.dtype)
            after = []
            for cells, weights in zip(dealt, models, strict=True):
                weights, losses = train(cells._replace(weights=weights), number, inputs)
                loss += inputs.cell_weight[np.array(cells.ids)] @ losses
                after.append(weights)
            return tuple(after), loss

        models, losses = lax.scan(
            edge_round, tuple(c.weights for c in dealt), jnp.arange(schedule.edge_rounds, dtype=jnp.int32)
        )
        trained = tuple(c._replace(weights=w) for c, w in zip(dealt, models, strict=True))
        return algorithm.merge(state, trained, now), losses.mean()

    # Independent clients

    def _independent(self, cells: Cells, number: Array, inputs: Inputs) -> tuple[Weights, Array]:
        layout = _layout(cells.ids, [len(r) for r in self.job.algorithm.topology.roster], self.job.participation)
        devices = self._mesh.size
        chunk = min(self.job.chunk or self._best_chunk(len(layout.cell)), -(-len(layout.cell) // devices))
        slots = self._slots(layout, number, inputs, pad_to=devices * chunk)
        run = jax.shard_map(
            partial(self._on_device, chunk),
            mesh=self._mesh,
            in_specs=(EVERYWHERE, EVERYWHERE, SPREAD, EVERYWHERE, EVERYWHERE),
            out_specs=EVERYWHERE,
            check_vma=False,
        )
        first = number * self.job.algorithm.schedule.local_steps
        weights, losses = run(cells.weights, cells.mask, slots, first, inputs)
        return weights, losses

    @property
    def layout(self) -> dict[str, int]:
        return {
            "devices": self._mesh.size,
            "chunk": self.job.chunk or self._best_chunk(self.job.algorithm.topology.clients),
        }

    def _best_chunk(self, slots: int) -> int:
        """One client at a time keeps a CPU core's cache warm; a GPU wants all of them."""
        return 1 if self._on_cpu else slots

    @property
    def _on_cpu(self) -> bool:
        return bool(self._mesh.devices.flat[0].platform == "cpu")

    def _on_device(
        self, chunk: int, models: Weights, mask: Weights | None, slots: Slots, first: Array, inputs: Inputs
    ) -> tuple[Weights, Array]:
        """This device's share of the slots, a chunk at a time, summed into the cells' models over all devices."""
        count = next(iter(models.values())).shape[0]

        def client(cell: Array, i: Array) -> tuple[Weights, Array]:
            weights = {path: w[cell] for path, w in models.items()}
            own_mask = None if mask is None else {path: w[cell] for path, w in mask.items()}
            return self._local(weights, own_mask, i, first, inputs)

        def one(total: Weights, slot: Slots) -> tuple[Weights, Array]:
            weights, loss = client(slot.cell, slot.client)
            return {p: t.at[slot.cell].add(slot.share * weights[p]) for p, t in total.items()}, loss

        def several(total: Weights, slot: Slots) -> tuple[Weights, Array]:
            weights, loss = jax.vmap(client)(slot.cell, slot.client)
            share = jnp.where(slot.cell == jnp.arange(count)[:, None], slot.share, 0)  # D × chunk
            return jax.tree.map(jnp.add, total, tree.weighted_sum(share, weights)), loss

        nothing = jax.tree.map(jnp.zeros_like, models)
        if chunk == 1:
            total, losses = lax.scan(one, nothing, slots)
        else:
            total, losses = lax.scan(several, nothing, jax.tree.map(lambda x: x.reshape(-1, chunk), slots))
        per_cell = jax.ops.segment_sum(slots.share * losses.reshape(-1), slots.cell, count)
        return lax.psum((total, per_cell), AXIS)

    def _local(
        self, weights: Weights, mask: Weights | None, client: Array, first: Array, inputs: Inputs
    ) -> tuple[Weights, Array]:
        """One client's `local_steps` from its edge's model."""
        task, steps = self.job.task, self.job.algorithm.schedule.local_steps

        def step(carry: tuple[Weights, Any], turn: tuple[Array, Array]) -> tuple[tuple[Weights, Any], Array]:
            weights, memory = carry
            k, index = turn
            loss, gradient, statistics = task.gradient(weights, inputs.data, index, inputs.key, client, k)
            return task.update(inputs.lr, weights, memory, gradient, statistics, mask), loss

        turns = (
            first + jnp.arange(steps, dtype=jnp.int32),
            task.indices(inputs.key, inputs.data, client, first, steps),
        )
        (weights, _), losses = lax.scan(step, (weights, task.fresh(inputs.lr, weights)), turns)
        return weights, losses.mean()

    # Cells in lockstep

    def _lockstep(self, cells: Cells, number: Array, inputs: Inputs) -> tuple[Weights, Array]:
        layout = _layout(cells.ids, [len(r) for r in self.job.algorithm.topology.roster], self.job.participation)
        slots = self._slots(layout, number, inputs, pad_to=1)
        # One row of slots per cell, short rows filled with slots of share 0; whole rows are spread over the devices.
        row, widest = np.bincount(layout.cell), int(np.bincount(layout.cell).max())
        take = np.cumsum([0, *row[:-1]])[:, None] + np.arange(widest)
        real = np.arange(widest) < row[:, None]
        grid = jax.tree.map(lambda x: x[np.where(real, take, take[:, :1])], slots)
        grid = grid._replace(share=jnp.where(real, grid.share, 0))
        missing = -len(cells.ids) % self._mesh.size
        operands = (cells.weights, cells.mask, grid.client, grid.share)
        operands = jax.tree.map(lambda x: jnp.concatenate([x, jnp.repeat(x[:1], missing, 0)]), operands)

        def on_device(operands: Any, first: Array, inputs: Inputs) -> tuple[Weights, Array]:
            def one(cell: Any) -> tuple[Weights, Array]:
                weights, mask, client, share = cell
                return self._cell(weights, mask, client, share, first, inputs)

            return lax.map(one, operands) if self._on_cpu else jax.vmap(one)(operands)

        run = jax.shard_map(
            on_device, mesh=self._mesh, in_specs=(SPREAD, EVERYWHERE, EVERYWHERE), out_specs=SPREAD, check_vma=False
        )
        first = number * self.job.algorithm.schedule.local_steps
        weights, losses = run(operands, first, inputs)
        return {p: w[: len(cells.ids)] for p, w in weights.items()}, losses[: len(cells.ids)]

    def _cell(
        self, weights: Weights, mask: Weights | None, client: Array, share: Array, first: Array, inputs: Inputs
    ) -> tuple[Weights, Array]:
        """One cell's `local_steps`, all its clients in lockstep."""
        task, steps = self.job.task, self.job.algorithm.schedule.local_steps
        shared = self.job.algorithm.shared
        assert shared is not None
        indices = jax.vmap(lambda i: task.indices(inputs.key, inputs.data, i, first, steps), out_axes=1)(client)
        turns = (first + jnp.arange(steps, dtype=jnp.int32), indices)
        cell = Cell(task, shared, mask, client, share, turns, inputs.lr, inputs.data, inputs.key)
        return LOCKSTEP[self.job.algorithm.sharing](cell, weights)

    # Who takes part

    def _slots(self, layout: Layout, number: Array, inputs: Inputs, pad_to: int) -> Slots:
        count = len(set(layout.cell.tolist()))
        if self.job.participation == 1:
            rank = jnp.asarray(layout.rank)
        else:

            def draw(cell: Array, rank: Array, size: Array) -> Array:
                return permute(fold(inputs.key, Purpose.PARTICIPATION, cell), number, rank, size)

            rank = jax.vmap(draw)(jnp.asarray(layout.id), jnp.asarray(layout.rank), jnp.asarray(layout.size))
        client = inputs.roster[layout.start + rank]
        weight = inputs.weight[client]
        share = weight / jax.ops.segment_sum(weight, layout.cell, count)[layout.cell]
        missing = -len(layout.cell) % pad_to
        filled = [jnp.concatenate([x, jnp.repeat(x[:1], missing)]) for x in (client, jnp.asarray(layout.cell))]
        return Slots(filled[0], filled[1], jnp.pad(share, (0, missing)))


class Layout(NamedTuple):
    """The slots of a batch of cells as far as they are known before any draw; one entry per slot."""

    cell: NDArray[np.int32]  # position in the batch
    id: NDArray[np.int32]  # the cell's own number
    rank: NDArray[np.int32]  # 0, 1, … within the cell
    start: NDArray[np.int32]  # where the cell begins in the roster
    size: NDArray[np.int32]  # its clients


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
