"""The fast engine compiles what is here: a global round as pure functions of arrays.

Clients are independent between edge averages, so they are shared out to the devices, taken in chunks (side by side
under `vmap`, or one at a time, which is what a CPU core likes), and each result is added at once to its cell's running
weighted sum. A device needs chunk × model + cells × model, whatever the number of clients; where equal cells can be
shared out evenly, it needs the models of its own cells only. Where a cell shares a part of its model
(`Algorithm.shared`), its clients advance in lockstep instead, and whole cells are shared out to the devices. The
devices may be those of several processes: sums are collectives.

Nothing that varies between runs of one shape (seed, learning rate, partition, weights) is compiled in: it comes with
`Inputs`.

Shape legend: K slots (client turns in an edge round), D cells of a stack, B batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh

from fedge.core import tree
from fedge.core.client import Task, local_round
from fedge.core.contract import Algorithm, Round, Stack, State
from fedge.core.keys import Purpose, fold
from fedge.core.sampling import participants
from fedge.core.tree import Weights
from fedge.engine.base import Job
from fedge.engine.inputs import INPUT_SPECS, Inputs, Slots, draw_slots, own_samples
from fedge.engine.lockstep import LOCKSTEP, Cell
from fedge.engine.mesh import AXIS, BY_DEVICE, REPLICATED, on_cpu


def first_chunk(job: Job, mesh: Mesh) -> int:
    """Take what was asked for; else one client at a time keeps a CPU core's cache warm, a GPU wants all at once (0)."""
    return job.chunk or (1 if on_cpu(mesh) else 0)


def cells_dealt(job: Job, state: State) -> tuple[tuple[int, ...], ...]:
    """Trace the algorithm's deal to find out which cells are in each of its stacks."""
    found: list[tuple[int, ...]] = []

    def deal(state: State, cell_weight: Array, constants: Any) -> None:
        now = Round(jnp.int32(0), job.key, cell_weight, constants)
        found.extend(stack.ids for stack in job.algorithm.deal(state, now))

    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state)
    weight = jax.ShapeDtypeStruct((job.algorithm.topology.cells,), job.task.dtype)
    jax.eval_shape(deal, shapes, weight, job.algorithm.constants)
    return tuple(found)


@dataclass(frozen=True, eq=False)
class TracedRound:
    """This holds what of a job is compiled into its program, and how its work lies on the devices."""

    algorithm: Algorithm
    task: Task
    participation: float
    mesh: Mesh
    chunk: int  # clients that a device trains side by side; 0: all of its own
    stacks: tuple[tuple[int, ...], ...]  # the cells of each stack

    @classmethod
    def of(cls, job: Job, state: State, mesh: Mesh, chunk: int) -> TracedRound:
        return cls(job.algorithm, job.task, job.participation, mesh, chunk, cells_dealt(job, state))

    # Numbers known before anything is traced

    def active(self, n: int) -> list[int]:
        """Count the clients of each cell of stack `n` that take part in an edge round."""
        roster = self.algorithm.topology.roster
        return [participants(len(roster[d]), self.participation) for d in self.stacks[n]]

    def chunk_of(self, n: int) -> int:
        """Count the clients of stack `n` that a device trains side by side: no more than it has slots."""
        slots = sum(self.active(n))
        return min(self.chunk or slots, -(-slots // self.mesh.size))

    def whole_cells(self, n: int) -> bool:
        """Say whether several devices train whole cells of stack `n`, each as many as the others: then none needs
        another's models, and no sums have to be added up."""
        active, devices = self.active(n), self.mesh.size
        even = len(set(active)) == 1 and len(active) % devices == 0
        return even and devices > 1 and sum(active) % (devices * self.chunk_of(n)) == 0

    @property
    def compiled_in(self) -> str:
        """Say what is compiled in: jobs of one shape that agree in it share a compiled program."""
        numbers = range(len(self.stacks))
        if self.algorithm.shared is None:
            return f"{self.chunk} {[self.whole_cells(n) for n in numbers]}"
        return f"{self.chunk} {[self.active(n) for n in numbers]}"

    # Whole rounds

    def rounds(self, state: State, span: tuple[Array, Array], inputs: Inputs) -> tuple[State, Array]:
        """Make all global rounds of a span (first, one beyond the last): the host is not asked in between."""

        def body(index: Array, carry: tuple[State, Array]) -> tuple[State, Array]:
            return self.round(carry[0], index, inputs)

        return lax.fori_loop(*span, body, (state, jnp.zeros((), self.task.dtype)))

    def round(self, state: State, index: Array, inputs: Inputs) -> tuple[State, Array]:
        """Make one global round; return the state after it, and its mean loss."""
        schedule = self.algorithm.schedule
        dealt = self.deal(state, index, inputs)
        train = self.train_independent if self.algorithm.shared is None else self.train_lockstep

        def edge_round(models: tuple[Weights, ...], a: Array) -> tuple[tuple[Weights, ...], Array]:
            number = index * schedule.edge_rounds + a
            loss = jnp.zeros((), self.task.dtype)
            after = []
            for n, (stack, weights) in enumerate(zip(dealt, models, strict=True)):
                weights, losses = train(n, weights, stack.mask, number, inputs)
                loss += inputs.cell_weight[np.array(stack.ids)] @ losses
                after.append(weights)
            return tuple(after), loss

        models, losses = lax.scan(
            edge_round, tuple(stack.weights for stack in dealt), jnp.arange(schedule.edge_rounds, dtype=jnp.int32)
        )
        return self.merge(state, dealt, models, index, inputs), losses.mean()

    def deal(self, state: State, index: Array, inputs: Inputs) -> tuple[Stack, ...]:
        return self.algorithm.deal(state, self.now(index, inputs))

    def merge(
        self, state: State, dealt: tuple[Stack, ...], models: tuple[Weights, ...], index: Array, inputs: Inputs
    ) -> State:
        trained = tuple(stack._replace(weights=w) for stack, w in zip(dealt, models, strict=True))
        return self.algorithm.merge(state, trained, self.now(index, inputs))

    def now(self, index: Array, inputs: Inputs) -> Round:
        key = fold(inputs.key, Purpose.ALGORITHM, index)
        return Round(index, key, inputs.cell_weight, inputs.constants)

    # An edge round of independent clients

    def train_independent(
        self, n: int, models: Weights, mask: Weights | None, number: Array, inputs: Inputs
    ) -> tuple[Weights, Array]:
        """Make one edge round of stack `n`; return its cells' models after it, and their losses."""
        chunk = self.chunk_of(n)
        slots = self.slots(n, number, inputs, pad_to=self.mesh.size * chunk)
        return self.sums(models, mask, slots, chunk, number, inputs, whole=self.whole_cells(n))

    def slots(self, n: int, number: Array, inputs: Inputs, pad_to: int) -> Slots:
        return draw_slots(len(self.stacks[n]), inputs.tables[n], number, inputs, self.participation, pad_to)

    def sums(
        self, models: Weights, mask: Weights | None, slots: Slots, chunk: int, number: Array, inputs: Inputs, *,
        whole: bool,
    ) -> tuple[Weights, Array]:  # fmt: skip
        """Train the clients in these slots; return weighted sums of their models and losses, cell by cell."""
        cells = BY_DEVICE if whole else REPLICATED
        run = jax.shard_map(
            partial(self._sums_on_device, chunk, whole),
            mesh=self.mesh,
            in_specs=(cells, cells, BY_DEVICE, REPLICATED, INPUT_SPECS),
            out_specs=cells,
            check_vma=False,
        )
        first = number * self.algorithm.schedule.local_steps
        weights, losses = run(models, mask, slots, first, inputs)
        return weights, losses

    def _sums_on_device(
        self, chunk: int, whole: bool, models: Weights, mask: Weights | None, slots: Slots, first: Array,
        inputs: Inputs,
    ) -> tuple[Weights, Array]:  # fmt: skip
        """Train this device's share of the slots, a chunk at a time; sum over all devices into the cells' models."""
        count = next(iter(models.values())).shape[0]
        inputs = own_samples(inputs)
        if whole:
            slots = slots._replace(cell=slots.cell - count * lax.axis_index(AXIS))

        def client(cell: Array, i: Array) -> tuple[Weights, Array]:
            weights = {path: w[cell] for path, w in models.items()}
            own_mask = None if mask is None else {path: w[cell] for path, w in mask.items()}
            return self._train_client(weights, own_mask, i, first, inputs)

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
        return (total, per_cell) if whole else lax.psum((total, per_cell), AXIS)

    def _train_client(
        self, weights: Weights, mask: Weights | None, client: Array, first: Array, inputs: Inputs
    ) -> tuple[Weights, Array]:
        """Make one client's `local_steps` from its edge's model."""
        own, steps = inputs.data.of(client), self.algorithm.schedule.local_steps
        return local_round(self.task, weights, mask, own, inputs.key, client, first, steps, inputs.lr)

    # An edge round of cells in lockstep

    def train_lockstep(
        self, n: int, models: Weights, mask: Weights | None, number: Array, inputs: Inputs
    ) -> tuple[Weights, Array]:
        """Do the same where clients share a part of their cell's model."""
        cells, row = len(self.stacks[n]), np.array(self.active(n))
        slots = self.slots(n, number, inputs, pad_to=1)
        # One row of slots per cell, short rows filled with slots of share 0; whole rows are shared out to the devices.
        widest = int(row.max())
        take = np.cumsum([0, *row[:-1]])[:, None] + np.arange(widest)
        real = np.arange(widest) < row[:, None]
        grid = jax.tree.map(lambda x: x[np.where(real, take, take[:, :1])], slots)
        grid = grid._replace(share=jnp.where(real, grid.share, 0))
        missing = -cells % self.mesh.size
        operands = (models, mask, grid.client, grid.share)
        operands = jax.tree.map(lambda x: jnp.concatenate([x, jnp.repeat(x[:1], missing, 0)]), operands)

        def on_device(operands: Any, first: Array, inputs: Inputs) -> tuple[Weights, Array]:
            inputs = own_samples(inputs)

            def one(cell: Any) -> tuple[Weights, Array]:
                weights, mask, client, share = cell
                return self._train_cell(weights, mask, client, share, first, inputs)

            rows = len(operands[2])
            at_once = min(rows, max(1, self.chunk // widest)) if self.chunk else rows
            if at_once == rows > 1:
                return jax.vmap(one)(operands)
            return lax.map(one, operands, batch_size=at_once if at_once > 1 else None)

        run = jax.shard_map(
            on_device,
            mesh=self.mesh,
            in_specs=(BY_DEVICE, REPLICATED, INPUT_SPECS),
            out_specs=BY_DEVICE,
            check_vma=False,
        )
        first = number * self.algorithm.schedule.local_steps
        weights, losses = run(operands, first, inputs)
        return {p: w[:cells] for p, w in weights.items()}, losses[:cells]

    def _train_cell(
        self, weights: Weights, mask: Weights | None, client: Array, share: Array, first: Array, inputs: Inputs
    ) -> tuple[Weights, Array]:
        """Make one cell's `local_steps`, all its clients in lockstep."""
        task, steps = self.task, self.algorithm.schedule.local_steps
        shared = self.algorithm.shared
        assert shared is not None
        indices = jax.vmap(lambda i: task.indices(inputs.key, inputs.data.of(i), i, first, steps), out_axes=1)(client)
        turns = (first + jnp.arange(steps, dtype=jnp.int32), indices)
        cell = Cell(task, shared, mask, client, share, turns, inputs.lr, inputs.data, inputs.key, self.chunk != 1)
        return LOCKSTEP[self.algorithm.sharing](cell, weights)
