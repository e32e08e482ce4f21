"""The fast engine: one compiled program for any number of global rounds.

Clients are independent between edge averages, so they are spread over the devices, taken in chunks (side by side under
`vmap`, or one at a time, which is what a CPU core likes), and each result is folded at once into its cell's running
weighted sum. A device needs chunk × model + cells × model, whatever the number of clients, and the samples of its own
clients (`placement`); where equal cells can be shared out evenly, it needs the models of its own cells only. Where a
cell shares a part of its model (`Algorithm.shared`), its clients advance in lockstep instead, and cells are spread over
the devices. The devices may be those of several processes: sums are collectives.

Nothing that varies between runs of one shape (seed, learning rate, partition, weights) is compiled in.

Shape legend: K slots (client turns in an edge round), D cells of a batch of equal shapes, B batch.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.errors import JaxRuntimeError
from jax.sharding import NamedSharding
from numpy.typing import NDArray

from fedge.core import tree
from fedge.core.contract import Cells, Round, State
from fedge.core.keys import Purpose, fold
from fedge.core.sampling import participants
from fedge.core.tree import Weights
from fedge.engine import placement
from fedge.engine.base import Engine, Job
from fedge.engine.lockstep import LOCKSTEP, Cell
from fedge.engine.memory import need_and_have
from fedge.engine.mesh import AXIS, EVERYWHERE, SPREAD, mesh_of, place
from fedge.engine.pieces import Pieces
from fedge.engine.programs import Programs
from fedge.engine.seats import PLACES, Inputs, Layout, Slots, arranged, own, taken

log = logging.getLogger(__name__)
STEPS_PER_CALL = 4_000  # of a device; with several, XLA's CPU runtime keeps some kB for each until a call returns


class Vectorised(Engine):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.mesh = mesh_of(job.devices)
        self.programs = Programs()
        self._inputs: Inputs | None = None
        self._pieces = Pieces(self)
        self._even: list[bool] = []  # for each batch of cells, whether devices have whole ones
        self._fits = 0  # a chunk that fits into memory, where one did not

    def retarget(self, job: Job) -> None:
        """Go on with another job of the same shape (another seed, learning rate or partition) without compiling."""
        super().retarget(job)
        self._inputs = None

    @property
    def compile_seconds(self) -> float:
        return self.programs.seconds

    def rounds(self, state: State, first: int, count: int) -> tuple[State, float]:
        """In one call of the program; in several on a CPU, which holds memory for every step until a call returns."""
        if self._long:
            return self._pieces.rounds(state, first, count)
        steps = max(1, self.job.steps_per_round // self.mesh.size)
        most = max(1, STEPS_PER_CALL // steps) if self._on_cpu else max(1, count)
        loss = 0.0
        for begin in range(first, first + max(count, 1), most):
            state, loss = self._call(state, begin, min(most, first + count - begin))
        return state, loss

    def _call(self, state: State, first: int, count: int) -> tuple[State, float]:
        state = place(state, self.mesh, EVERYWHERE)
        span = place((np.int32(first), np.int32(first + count)), self.mesh, EVERYWHERE)
        while True:
            operands = (state, span, self.inputs(state))
            try:
                program = self.programs.get(
                    f"rounds {self._fits} {self._even}", self.program, *operands, may_stay=self._may_stay,
                    out_shardings=NamedSharding(self.mesh, EVERYWHERE),
                )  # fmt: skip
                if program is not None:
                    after, loss = program(*operands)
                    return after, float(loss)
            except JaxRuntimeError as problem:
                alone = jax.process_count() == 1  # the others would not know of another chunk
                full = str(problem).startswith("RESOURCE_EXHAUSTED")
                if not (alone and full and self._halve("did not fit")):
                    raise

    def _may_stay(self, program: Any) -> bool:
        """Whether a program fits into memory, or there is no smaller one."""
        common = self._inputs.data if self._one_memory and self._inputs is not None else ()
        need, have = need_and_have(program, self.mesh, sum(a.nbytes for a in common) // self.mesh.size)
        return not (need > have and self._halve(f"needs {need:.1f} GB of {have:.1f}"))

    @property
    def _long(self) -> bool:
        """Whether an edge round takes several calls of a program."""
        slots = self.job.steps_per_round // self.job.algorithm.schedule.period // self.mesh.size
        alone = self.job.algorithm.shared is None and self._limit <= 1
        return self._on_cpu and alone and slots * self.job.algorithm.schedule.local_steps > 2 * STEPS_PER_CALL

    def piece_of(self, slots: int) -> int:
        """A device's slots in one call: all of these in as few, equally long calls as may be."""
        mine = -(-slots // self.mesh.size)
        calls = -(-mine * self.job.algorithm.schedule.local_steps // STEPS_PER_CALL)
        return -(-mine // calls)

    def now(self, index: Array, inputs: Inputs) -> Round:
        key = fold(inputs.key, Purpose.ALGORITHM, index)
        return Round(index, key, inputs.cell_weight, inputs.constants)

    def inputs(self, state: State) -> Inputs:
        """Everything a round reads, on the devices; prepared once for a job."""
        self._inputs = self._inputs or self._prepared(state)
        return self._inputs

    def _prepared(self, state: State) -> Inputs:
        groups = self.groups(state)
        rest = arranged(self.job, groups)
        slots = [len(layout.cell) for layout in rest.layouts]
        self._even = [self.whole_cells(ids, n) for ids, n in zip(groups, slots, strict=True)]
        if self._one_memory:
            data = placement.shared(self.job.data, self.mesh)
        else:
            data = placement.spread(self.job.data, self._residents(groups, rest.layouts), self.mesh)
        return place(rest, self.mesh, EVERYWHERE)._replace(data=data)

    @property
    def _one_memory(self) -> bool:
        return self._on_cpu and jax.process_count() == 1

    def _residents(self, groups: list[tuple[int, ...]], layouts: tuple[Layout, ...]) -> list[NDArray[np.int32]]:
        """Who may train on each device."""
        job, topology, devices = self.job, self.job.algorithm.topology, self.mesh.size
        sizes = [len(r) for r in topology.roster]
        residents: list[list[NDArray[np.int32]]] = [[] for _ in range(devices)]
        for ids, layout in zip(groups, layouts, strict=True):
            if job.algorithm.shared is None:
                active = [participants(sizes[d], job.participation) for d in ids]
                slots, drawn = len(layout.cell), job.participation < 1
                grain = self.piece_of(slots) if self._long else self._chunk_of(slots)
                seats = placement.slots(ids, active, drawn, topology.roster, devices, grain)
            else:
                seats = placement.whole_cells(ids, topology.roster, devices)
            for j, clients in enumerate(seats):
                residents[j].append(clients)
        return [np.concatenate(parts) for parts in residents]

    def groups(self, state: State) -> list[tuple[int, ...]]:
        """The batches of cells that this algorithm deals."""
        found: list[tuple[int, ...]] = []
        algorithm, key = self.job.algorithm, self.job.key

        def deal(state: State, cell_weight: Array, constants: Any) -> None:
            dealt = algorithm.deal(state, Round(jnp.int32(0), key, cell_weight, constants))
            found.extend(cells.ids for cells in dealt)

        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state)
        weight = jax.ShapeDtypeStruct((algorithm.topology.cells,), self.job.task.dtype)
        jax.eval_shape(deal, shapes, weight, algorithm.constants)
        return found

    def _halve(self, why: str) -> bool:
        """Train half as many clients side by side, and say so; False where it is one (or one cell) already."""
        sizes = [len(r) for r in self.job.algorithm.topology.roster]
        least = 1 if self.job.algorithm.shared is None else max(sizes)
        chunk = self._limit or -(-sum(sizes) // self.mesh.size)
        if chunk <= least or (self._on_cpu and not self._limit):
            return False
        self._fits, self._inputs = -(-chunk // 2), None
        log.warning("chunk=%d %s; going on with chunk=%d", chunk, why, self._fits)
        return True

    @property
    def _limit(self) -> int:
        """Clients side by side on a device: as asked for, or fewer if that did not fit; 0 where nothing limits them."""
        return min(self.job.chunk or self._fits, self._fits or self.job.chunk)

    def program(self, state: State, span: tuple[Array, Array], inputs: Inputs) -> tuple[State, Array]:
        """One program for any number of rounds: the host is not asked in between."""

        def body(index: Array, carry: tuple[State, Array]) -> tuple[State, Array]:
            return self._round(carry[0], index, inputs)

        return lax.fori_loop(*span, body, (state, jnp.zeros((), self.job.task.dtype)))

    def _round(self, state: State, index: Array, inputs: Inputs) -> tuple[State, Array]:
        algorithm, schedule = self.job.algorithm, self.job.algorithm.schedule
        now = self.now(index, inputs)
        dealt = algorithm.deal(state, now)
        train = self._independent if algorithm.shared is None else self._lockstep

        def edge_round(models: tuple[Weights, ...], a: Array) -> tuple[tuple[Weights, ...], Array]:
            number = index * schedule.edge_rounds + a
            loss = jnp.zeros((), self.job.task.dtype)
            after = []
            for cells, weights, layout in zip(dealt, models, inputs.layouts, strict=True):
                weights, losses = train(cells._replace(weights=weights), layout, number, inputs)
                loss += inputs.cell_weight[np.array(cells.ids)] @ losses
                after.append(weights)
            return tuple(after), loss

        models, losses = lax.scan(
            edge_round, tuple(c.weights for c in dealt), jnp.arange(schedule.edge_rounds, dtype=jnp.int32)
        )
        trained = tuple(c._replace(weights=w) for c, w in zip(dealt, models, strict=True))
        return algorithm.merge(state, trained, now), losses.mean()

    # Independent clients

    def _independent(self, cells: Cells, layout: Layout, number: Array, inputs: Inputs) -> tuple[Weights, Array]:
        chunk = self._chunk_of(len(layout.cell))
        slots = taken(len(cells.ids), layout, number, inputs, self.job.participation, pad_to=self.mesh.size * chunk)
        whole = self.whole_cells(cells.ids, len(layout.cell))
        return self.summed(cells.weights, cells.mask, slots, chunk, number, inputs, whole)

    def whole_cells(self, ids: Sequence[int], slots: int) -> bool:
        """Whether each of several devices trains whole cells, as many as the others. Then none needs another's models,
        and no sums have to be added up."""
        active = {participants(len(self.job.algorithm.topology.roster[d]), self.job.participation) for d in ids}
        even = len(active) == 1 and len(ids) % self.mesh.size == 0
        return even and self.mesh.size > 1 and slots % (self.mesh.size * self._chunk_of(slots)) == 0

    def summed(
        self, models: Weights, mask: Weights | None, slots: Slots, chunk: int, number: Array, inputs: Inputs,
        whole: bool,
    ) -> tuple[Weights, Array]:  # fmt: skip
        """Weighted sums of the clients' models and losses, cell by cell."""
        cells = SPREAD if whole else EVERYWHERE
        run = jax.shard_map(
            partial(self._on_device, chunk, whole),
            mesh=self.mesh,
            in_specs=(cells, cells, SPREAD, EVERYWHERE, PLACES),
            out_specs=cells,
            check_vma=False,
        )
        first = number * self.job.algorithm.schedule.local_steps
        weights, losses = run(models, mask, slots, first, inputs)
        return weights, losses

    @property
    def layout(self) -> dict[str, int]:
        return {
            "devices": self.mesh.size,
            "chunk": self._limit or (1 if self._on_cpu else self.job.algorithm.topology.clients),
        }

    def _chunk_of(self, slots: int) -> int:
        """One client at a time keeps a CPU core's cache warm; a GPU wants all of its slots."""
        return min(self._limit or (1 if self._on_cpu else slots), -(-slots // self.mesh.size))

    @property
    def _on_cpu(self) -> bool:
        return bool(self.mesh.devices.flat[0].platform == "cpu")

    def _on_device(
        self, chunk: int, whole: bool, models: Weights, mask: Weights | None, slots: Slots, first: Array,
        inputs: Inputs,
    ) -> tuple[Weights, Array]:  # fmt: skip
        """This device's share of the slots, a chunk at a time, summed into the cells' models over all devices."""
        count = next(iter(models.values())).shape[0]
        inputs = own(inputs)
        if whole:
            slots = slots._replace(cell=slots.cell - count * lax.axis_index(AXIS))

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
        return (total, per_cell) if whole else lax.psum((total, per_cell), AXIS)

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

    def _lockstep(self, cells: Cells, layout: Layout, number: Array, inputs: Inputs) -> tuple[Weights, Array]:
        slots = taken(len(cells.ids), layout, number, inputs, self.job.participation, pad_to=1)
        sizes = [len(self.job.algorithm.topology.roster[d]) for d in cells.ids]
        row = np.array([participants(n, self.job.participation) for n in sizes])
        # One row of slots per cell, short rows filled with slots of share 0; whole rows are spread over the devices.
        widest = int(row.max())
        take = np.cumsum([0, *row[:-1]])[:, None] + np.arange(widest)
        real = np.arange(widest) < row[:, None]
        grid = jax.tree.map(lambda x: x[np.where(real, take, take[:, :1])], slots)
        grid = grid._replace(share=jnp.where(real, grid.share, 0))
        missing = -len(cells.ids) % self.mesh.size
        operands = (cells.weights, cells.mask, grid.client, grid.share)
        operands = jax.tree.map(lambda x: jnp.concatenate([x, jnp.repeat(x[:1], missing, 0)]), operands)

        def on_device(operands: Any, first: Array, inputs: Inputs) -> tuple[Weights, Array]:
            inputs = own(inputs)

            def one(cell: Any) -> tuple[Weights, Array]:
                weights, mask, client, share = cell
                return self._cell(weights, mask, client, share, first, inputs)

            rows = len(operands[2])
            together = min(rows, max(1, (self._limit or (1 if self._on_cpu else rows * widest)) // widest))
            if together == rows > 1:
                return jax.vmap(one)(operands)
            return lax.map(one, operands, batch_size=together if together > 1 else None)

        run = jax.shard_map(
            on_device, mesh=self.mesh, in_specs=(SPREAD, EVERYWHERE, PLACES), out_specs=SPREAD, check_vma=False
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
