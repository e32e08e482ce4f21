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

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh

from fedge.core import tree
from fedge.core.client import NOTHING, Link, Task, Update, local_round
from fedge.core.contract import Algorithm, Round, Stack, State
from fedge.core.keys import Purpose, fold
from fedge.core.sampling import participants
from fedge.core.tree import Weights
from fedge.core.update import Hop, Memory, after_cloud, pass_cells
from fedge.engine.base import Job
from fedge.engine.collected import train_collected
from fedge.engine.inputs import INPUT_SPECS, Cells, Inputs, Slots, cell_grid, draw_slots, own_samples
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
        if self.algorithm.shared is None and not self.algorithm.way.collects:
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
        schedule, way = self.algorithm.schedule, self.algorithm.way
        memory = state.memory.begin_round(way, self.algorithm.topology.clients) if way.keeps else NOTHING
        dealt = self.deal(state, index, inputs)

        def edge_round(carry: tuple[tuple[Weights, ...], Any, Memory], a: Array) -> tuple[Any, Array]:
            models, moments, memory = carry
            number = index * schedule.edge_rounds + a
            loss = jnp.zeros((), self.task.dtype)
            after = []
            for n, (stack, weights) in enumerate(zip(dealt, models, strict=True)):
                weights = self.handed(n, weights, number, inputs)
                cells = Cells(weights, stack.mask, stack.weights if way.prox_to_round else None)
                weights, losses, memory = self.train(n, cells, memory, number, inputs)
                loss += inputs.cell_weight[np.array(stack.ids)] @ losses
                after.append(weights)
            return (*self.step_edges(dealt, models, tuple(after), moments), memory), loss

        start = tuple(stack.weights for stack in dealt), self.edge_moments(dealt), memory
        (models, _, memory), losses = lax.scan(edge_round, start, jnp.arange(schedule.edge_rounds, dtype=jnp.int32))
        state = self.merge(state, dealt, models, index, inputs)
        if way.keeps:
            state = state._replace(memory=self.remembered(memory, models, inputs))
        return state, losses.mean()

    def train(
        self, n: int, cells: Cells, memory: Memory, number: Array, inputs: Inputs
    ) -> tuple[Weights, Array, Memory]:
        """Make one edge round of stack `n`; return its cells' models after it, their losses, and clients' memory."""
        if self.algorithm.shared is not None:
            return *self.train_lockstep(n, cells, number, inputs), memory
        if self.algorithm.way.collects:
            return train_collected(self, n, cells, memory, number, inputs)
        return *self.train_independent(n, cells, number, inputs), memory

    def edge_moments(self, dealt: Sequence[Stack | Cells]) -> tuple[Any, ...]:
        """Return what edges' optimisers remember as a global round begins, stack by stack; nothing without them."""
        server = self.algorithm.way.edge_server
        return () if server is None else tuple(jax.vmap(server.start)(cells.weights) for cells in dealt)

    def step_edges(
        self, dealt: Sequence[Stack | Cells], before: Sequence[Weights], combined: tuple[Weights, ...],
        moments: tuple[Any, ...],
    ) -> tuple[tuple[Weights, ...], tuple[Any, ...]]:  # fmt: skip
        """Let the edges' optimisers, where there are any, step from the models before an edge round."""
        server = self.algorithm.way.edge_server
        if server is None:
            return combined, moments
        masks = [cells.mask for cells in dealt]
        each = [jax.vmap(server.step)(*operands) for operands in zip(before, combined, masks, moments, strict=True)]
        return tuple(model for model, _ in each), tuple(own for _, own in each)

    def handed(self, n: int, models: Weights, number: Array, inputs: Inputs) -> Weights:
        """Return cells' models as their clients get them."""
        way, ids = self.algorithm.way, np.array(self.stacks[n], np.int32)
        if way.downlink is None:
            return models
        first = number * self.algorithm.schedule.local_steps
        return pass_cells(way.downlink, Hop.DOWNLINK, models, self.sent, ids, first, inputs.key)

    def sent(self, path: str) -> bool:
        """Say whether a client is sent this part of a model, and trains it."""
        return path in self.task.trainable and not (self.algorithm.shared is not None and self.algorithm.shared(path))

    def remembered(self, memory: Memory, models: tuple[Weights, ...], inputs: Inputs) -> Memory:
        """Return the memory at the end of a global round; its shapes are those of the state's."""
        way, schedule = self.algorithm.way, self.algorithm.schedule
        if way.correction is None:
            return memory
        work = schedule.period * inputs.lr
        control = after_cloud(way, memory.control, inputs.cell_weight, models[0], work)
        return memory._replace(control=control, shift=memory.shift if way.correction.persistent else {})

    def deal(self, state: State, index: Array, inputs: Inputs) -> tuple[Stack, ...]:
        return self.algorithm.deal(state, self.now(index, inputs))

    def merge(
        self, state: State, dealt: tuple[Stack, ...], models: tuple[Weights, ...], index: Array, inputs: Inputs
    ) -> State:
        if (codec := self.algorithm.way.backhaul) is not None:
            first = (index + 1) * self.algorithm.schedule.period
            models = tuple(
                w | tree.add(pass_cells(
                    codec, Hop.BACKHAUL, tree.subtract(w, stack.weights), self.task.trainable.__contains__,
                    np.array(stack.ids, np.int32), first, inputs.key,
                ), stack.weights)
                for stack, w in zip(dealt, models, strict=True)
            )  # fmt: skip
        trained = tuple(stack._replace(weights=w) for stack, w in zip(dealt, models, strict=True))
        return self.algorithm.merge(state, trained, self.now(index, inputs))

    def now(self, index: Array, inputs: Inputs) -> Round:
        key = fold(inputs.key, Purpose.ALGORITHM, index)
        return Round(index, key, inputs.cell_weight, inputs.constants)

    # An edge round of independent clients

    def train_independent(self, n: int, cells: Cells, number: Array, inputs: Inputs) -> tuple[Weights, Array]:
        """Make one edge round of stack `n`; return its cells' models after it, and their losses."""
        chunk = self.chunk_of(n)
        slots = self.slots(n, number, inputs, pad_to=self.mesh.size * chunk)
        return self.sums(cells, slots, chunk, number, inputs, whole=self.whole_cells(n))

    def slots(self, n: int, number: Array, inputs: Inputs, pad_to: int) -> Slots:
        return draw_slots(len(self.stacks[n]), inputs.tables[n], number, inputs, self.participation, pad_to)

    def sums(
        self, cells: Cells, slots: Slots, chunk: int, number: Array, inputs: Inputs, *, whole: bool
    ) -> tuple[Weights, Array]:
        """Train the clients in these slots; return weighted sums of their models and losses, cell by cell."""
        spec = BY_DEVICE if whole else REPLICATED
        run = jax.shard_map(
            partial(self._sums_on_device, chunk, whole),
            mesh=self.mesh,
            in_specs=(spec, BY_DEVICE, REPLICATED, INPUT_SPECS),
            out_specs=spec,
            check_vma=False,
        )
        first = number * self.algorithm.schedule.local_steps
        weights, losses = run(cells, slots, first, inputs)
        return weights, losses

    def _sums_on_device(
        self, chunk: int, whole: bool, cells: Cells, slots: Slots, first: Array, inputs: Inputs
    ) -> tuple[Weights, Array]:
        """Train this device's share of the slots, a chunk at a time; sum over all devices into the cells' models."""
        models = cells.weights
        count = next(iter(models.values())).shape[0]
        inputs = own_samples(inputs)
        if whole:
            slots = slots._replace(cell=slots.cell - count * lax.axis_index(AXIS))

        def client(cell: Array, i: Array) -> tuple[Weights, Array]:
            own: Cells = jax.tree.map(lambda w: w[cell], cells)
            update = self.train_client(own, None, NOTHING, i, first, inputs)
            return update.weights, update.loss

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

    def train_client(
        self, cell: Cells, control: Weights | None, memory: Memory, client: Array, first: Array, inputs: Inputs
    ) -> Update:
        """Make one client's local round from its edge's model."""
        link, steps = Link(cell.mask, cell.origin, control), self.algorithm.schedule.local_steps
        return local_round(
            self.task, self.algorithm.way, cell.weights, link, inputs.data.of(client), memory, inputs.key, client,
            first, steps, inputs.lr,
        )  # fmt: skip

    # An edge round of cells in lockstep

    def train_lockstep(self, n: int, cells: Cells, number: Array, inputs: Inputs) -> tuple[Weights, Array]:
        """Do the same where clients share a part of their cell's model."""
        count = len(self.stacks[n])
        slots = self.slots(n, number, inputs, pad_to=1)
        grid, share = cell_grid(self.active(n), slots.share)  # whole rows are shared out to the devices
        widest, missing = grid.shape[1], -count % self.mesh.size
        operands = (cells, slots.client[grid], share)
        operands = jax.tree.map(lambda x: jnp.concatenate([x, jnp.repeat(x[:1], missing, 0)]), operands)

        def on_device(operands: Any, first: Array, inputs: Inputs) -> tuple[Weights, Array]:
            inputs = own_samples(inputs)

            def one(operands: Any) -> tuple[Weights, Array]:
                cell, client, share = operands
                return self._train_cell(cell, client, share, first, inputs)

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
        return {p: w[:count] for p, w in weights.items()}, losses[:count]

    def _train_cell(
        self, own: Cells, client: Array, share: Array, first: Array, inputs: Inputs
    ) -> tuple[Weights, Array]:
        """Make one cell's `local_steps`, all its clients in lockstep."""
        task, steps = self.task, self.algorithm.schedule.local_steps
        shared = self.algorithm.shared
        assert shared is not None
        indices = jax.vmap(lambda i: task.indices(inputs.key, inputs.data.of(i), i, first, steps), out_axes=1)(client)
        turns = (first + jnp.arange(steps, dtype=jnp.int32), indices)
        cell = Cell(task, self.algorithm.way, shared, own.mask, own.origin, client, share, turns, inputs.lr,
                    inputs.data, inputs.key, self.chunk != 1)  # fmt: skip
        return LOCKSTEP[self.algorithm.sharing](cell, own.weights)
