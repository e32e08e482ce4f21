"""The naive engine loops in Python over cells, clients and steps, in the order a reader would write them.

It is slow and obvious on purpose. The vectorised engine must agree with it to rounding, in float32 and in float64.
Its averages are numpy's, which need no compiling.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedge.core import tree
from fedge.core.client import NOTHING
from fedge.core.contract import Round, Sharing, Stack, State
from fedge.core.edge import aggregate_of
from fedge.core.keys import Purpose, fold
from fedge.core.sampling import draw_participants
from fedge.core.tree import Weights
from fedge.core.update import Hop, Memory, after_cloud, draw_key
from fedge.engine.base import Engine, Job


class Reference(Engine):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        task = job.task
        self.retarget(job)
        self._gradient = jax.jit(task.gradient)
        self._update = jax.jit(task.update)
        way = job.algorithm.way
        self._step = None if way.edge_server is None else jax.jit(way.edge_server.step)
        codecs = {Hop.UPLINK: way.uplink, Hop.DOWNLINK: way.downlink, Hop.BACKHAUL: way.backhaul}
        self._passed = {hop: jax.jit(codec.passed) for hop, codec in codecs.items() if codec is not None}
        self._indices = jax.jit(
            lambda key, data, i, first, steps: task.indices(key, data.of(i), i, first, steps), static_argnums=4
        )

    def retarget(self, job: Job) -> None:
        self.job = replace(job, data=jax.tree.map(jnp.asarray, job.data))

    def rounds(self, state: State, first: int, count: int) -> tuple[State, float]:
        loss = 0.0
        for index in range(first, first + count):
            state, loss = self._round(state, index)
        return state, loss

    def _round(self, state: State, index: int) -> tuple[State, float]:
        algorithm, schedule = self.job.algorithm, self.job.algorithm.schedule
        cell_weight = jnp.asarray(algorithm.topology.cell_weight, self.job.task.dtype)
        constants = jax.tree.map(jnp.asarray, algorithm.constants)
        now = Round(jnp.int32(index), fold(self.job.key, Purpose.ALGORITHM, index), cell_weight, constants)

        way = algorithm.way
        rows = Rows.of(state.memory.begin_round(way, algorithm.topology.clients) if way.keeps else NOTHING)
        dealt = stacks = algorithm.deal(state, now)
        loss, moments = 0.0, dict[int, Any]()
        for a in range(schedule.edge_rounds):
            first = index * schedule.period + a * schedule.local_steps
            trained = []
            for stack, origin in zip(stacks, dealt, strict=True):
                models = []
                for position, cell in enumerate(stack.ids):
                    before = _at(position, stack.weights)
                    model = self._handed(before, cell, first)
                    mask = None if stack.mask is None else _at(position, stack.mask)
                    turn = Turn(cell, first, index * schedule.edge_rounds + a, mask, _at(position, origin.weights))
                    model, cell_loss = self._edge_round(model, turn, rows)
                    models.append(self._stepped(before, model, turn, moments))
                    loss += float(algorithm.topology.cell_weight[cell]) * cell_loss / schedule.edge_rounds
                weights = {path: jax.device_put(np.stack([m[path] for m in models])) for path in models[0]}
                trained.append(stack._replace(weights=weights))
            stacks = tuple(trained)
        last = (index + 1) * schedule.period
        sent = tuple(self._sent_up(stack, origin, last) for stack, origin in zip(stacks, dealt, strict=True))
        state = algorithm.merge(state, sent, now)
        if way.keeps:
            work = jnp.asarray(schedule.period * self.job.lr, self.job.task.dtype)
            memory = rows.memory()
            if way.correction is not None:
                memory = memory._replace(
                    control=after_cloud(way, memory.control, cell_weight, stacks[0].weights, work),
                    shift=memory.shift if way.correction.persistent else {},
                )
            state = state._replace(memory=memory)
        return state, loss

    def _handed(self, model: Weights, cell: int, first: int) -> Weights:
        """Return an edge's model as its clients get it."""
        shared = self.job.algorithm.shared or (lambda path: False)
        if Hop.DOWNLINK not in self._passed:
            return model
        key = draw_key(self.job.key, Hop.DOWNLINK, jnp.int32(cell), jnp.int32(first))
        sent = {p: jnp.asarray(w) for p, w in model.items() if p in self.job.task.trainable and not shared(p)}
        return model | self._passed[Hop.DOWNLINK](key, sent)

    def _sent_up(self, stack: Stack, origin: Stack, iteration: int) -> Stack:
        """Return edges' models as they arrive in the cloud."""
        if Hop.BACKHAUL not in self._passed:
            return stack
        arrived = dict(stack.weights)
        for position, cell in enumerate(stack.ids):
            key = draw_key(self.job.key, Hop.BACKHAUL, jnp.int32(cell), jnp.int32(iteration))
            sent = [path for path in stack.weights if path in self.job.task.trainable]
            moved = {p: stack.weights[p][position] - origin.weights[p][position] for p in sent}
            for path, delta in self._passed[Hop.BACKHAUL](key, moved).items():
                arrived[path] = arrived[path].at[position].set(origin.weights[path][position] + delta)
        return stack._replace(weights=arrived)

    def _stepped(self, before: Weights, combined: Weights, turn: Turn, moments: dict[int, Any]) -> Weights:
        """Let the edge's optimiser, where it has one, step from its model before; it begins with the global round."""
        server = self.job.algorithm.way.edge_server
        if server is None or self._step is None:
            return combined
        own = moments[turn.cell] if turn.cell in moments else server.start(before)
        model, moments[turn.cell] = self._step(before, combined, turn.mask, own)
        return model

    def _edge_round(self, model: Weights, turn: Turn, rows: Rows) -> tuple[Weights, float]:
        """Make `local_steps` in one cell, all clients in lockstep, then average those that took part."""
        job, task, shared = self.job, self.job.task, self.job.algorithm.shared or (lambda path: False)
        steps, lr = job.algorithm.schedule.local_steps, jnp.asarray(job.lr, task.dtype)
        cell, first, number, mask, _ = turn
        (drawn,) = draw_participants(job.key, job.algorithm.topology.roster, [number], job.participation)
        clients = drawn[cell].tolist()
        weight = [float(job.algorithm.topology.weight[i]) for i in clients]
        share = [w / sum(weight) for w in weight]

        replicas = [dict(model) for _ in clients]
        memories = [task.fresh(lr, model) for _ in clients]
        batches = [self._indices(job.key, job.data, jnp.int32(i), jnp.int32(first), steps) for i in clients]
        sharing = job.algorithm.sharing
        if sharing is Sharing.SEQUENTIAL:
            return self._one_after_the_other(model, turn, clients, share, batches)
        loss = 0.0
        for step in range(steps):
            gradients, statistics = [], []
            for n, i in enumerate(clients):
                value, gradient, after = self._gradient(
                    replicas[n], job.data, batches[n][step], job.key, jnp.int32(i), jnp.int32(first + step)
                )
                gradients.append(gradient)
                statistics.append(after)
                loss += share[n] * float(value) / steps
            for given in (gradients, statistics) if sharing is Sharing.MEAN else ():  # what the cell shares
                mean = _mean(share, [tree.split(g, shared)[0] for g in given])
                for n, g in enumerate(given):
                    given[n] = g | mean
            for n, i in enumerate(clients):
                gradients[n] = self._pulled(gradients[n], replicas[n], model, turn, rows, i)
            for n in range(len(clients)):
                replicas[n], memories[n] = self._update(lr, replicas[n], memories[n], gradients[n], statistics[n], mask)
            if sharing is Sharing.COPIES:
                mean = _mean(share, [tree.split(r, shared)[0] for r in replicas])
                replicas = [r | mean for r in replicas]
        return self._averaged(model, turn, rows, clients, share, replicas), loss

    def _pulled(self, gradient: Weights, own: Weights, start: Weights, turn: Turn, rows: Rows, i: int) -> Weights:
        """Add to a client's gradient what the way says: μ(w − anchor), and its correction."""
        way, shared = self.job.algorithm.way, self.job.algorithm.shared or (lambda path: False)
        pulled = dict(gradient)
        anchor = turn.origin if way.prox_to_round else start
        shift = {} if way.correction is None else way.correction.shift(rows.shift[i], rows.control[turn.cell])
        for path in (p for p in gradient if not shared(p)):
            if way.prox is not None:
                pulled[path] = pulled[path] + way.prox * (own[path] - anchor[path])
            if path in shift:
                pulled[path] = pulled[path] + shift[path]
        return pulled

    def _averaged(
        self, start: Weights, turn: Turn, rows: Rows, clients: list[int], share: list[float], replicas: list[Weights]
    ) -> Weights:
        """Send clients' models through their codec and combine them at the edge; then everybody learns from it."""
        way, task = self.job.algorithm.way, self.job.task
        shared = self.job.algorithm.shared or (lambda path: False)
        own = [path for path in start if path in task.trainable and not shared(path)]
        work = jnp.asarray(self.job.algorithm.schedule.local_steps * self.job.lr, task.dtype)
        before, arrived = {i: rows.shift[i] for i in clients if rows.shift}, []
        for i, model in zip(clients, replicas, strict=True):
            moved = {path: model[path] - start[path] for path in own}
            if way.correction is not None:
                rows.shift[i] = way.correction.after_steps(rows.shift[i], rows.control[turn.cell], moved, work)
            if way.uplink is not None:
                key = draw_key(self.job.key, Hop.UPLINK, jnp.int32(i), jnp.int32(turn.first))
                wanted = tree.add(moved, rows.lost[i]) if way.uplink.feedback else moved
                got = self._passed[Hop.UPLINK](key, jax.tree.map(jnp.asarray, wanted))
                if way.uplink.feedback:
                    rows.lost[i] = tree.subtract(wanted, got)
                model = model | tree.add(got, start)
            arrived.append(model)
        edge = aggregate_of(way.edge_rule)
        total = edge.empty(start)
        for weight, model in zip(share, arrived, strict=True):
            plain: Any = {path: np.asarray(w) for path, w in model.items()}
            total = edge.add(total, weight, plain)
        combined: Weights = jax.device_put(edge.close(total, start))
        if way.correction is not None:
            moved, topology = {path: combined[path] - start[path] for path in own}, self.job.algorithm.topology
            change = {path: jnp.zeros_like(start[path]) for path in own}
            for i in clients:
                rows.shift[i] = way.correction.after_edge(rows.shift[i], moved, work)
                part = topology.weight[i] / topology.cell_weight[turn.cell]
                change = {p: c + part * (rows.shift[i][p] - before[i][p]) for p, c in change.items()}
            rows.control[turn.cell] = way.correction.cell_after_edge(rows.control[turn.cell], change)
        return combined

    def _one_after_the_other(
        self, model: Weights, turn: Turn, clients: list[int], share: list[float], batches: list[Array]
    ) -> tuple[Weights, float]:
        """Do the same, but at each step one client after the other steps what the cell shares."""
        job, task, shared = self.job, self.job.task, self.job.algorithm.shared or (lambda path: False)
        steps, lr = job.algorithm.schedule.local_steps, jnp.asarray(job.lr, task.dtype)
        nothing, mask, first = Rows.of(NOTHING), turn.mask, turn.first
        common, private = tree.split(model, shared)
        memory, replicas = task.fresh(lr, common), [private for _ in clients]
        memories, loss = [task.fresh(lr, private) for _ in clients], 0.0
        for step in range(steps):
            for n, i in enumerate(clients):
                value, gradient, after = self._gradient(
                    replicas[n] | common, job.data, batches[n][step], job.key, jnp.int32(i), jnp.int32(first + step)
                )
                (g_common, g_own), (s_common, s_own) = tree.split(gradient, shared), tree.split(after, shared)
                common, memory = self._update(lr, common, memory, g_common, s_common, mask)
                g_own = self._pulled(g_own, replicas[n], model, turn, nothing, i)
                replicas[n], memories[n] = self._update(lr, replicas[n], memories[n], g_own, s_own, mask)
                loss += share[n] * float(value) / steps
        return self._averaged(private, turn, nothing, clients, share, replicas) | common, loss


class Turn(NamedTuple):
    """This is a cell's edge round: which cell, its first iteration, its number, and what it was dealt."""

    cell: int
    first: int
    number: int
    mask: Weights | None
    origin: Weights


@dataclass
class Rows:
    """This is the memory of clients and cells, row by row, which an edge round changes."""

    shift: list[Weights]
    lost: list[Weights]
    control: list[Weights]

    @classmethod
    def of(cls, memory: Memory) -> Rows:
        def rows(stacked: Weights) -> list[Weights]:
            return [_at(n, stacked) for n in range(len(next(iter(stacked.values()))))] if stacked else []

        return cls(*map(rows, memory))

    def memory(self) -> Memory:
        def stacked(rows: list[Weights]) -> Weights:
            return {p: jnp.stack([jnp.asarray(r[p]) for r in rows]) for p in rows[0]} if rows else {}

        return Memory(stacked(self.shift), stacked(self.lost), stacked(self.control))


def _at(position: int, stacked: Weights) -> Weights:
    return {path: np.asarray(w)[position] for path, w in stacked.items()}


def _mean(share: list[float], models: list[Weights]) -> Weights:
    def mean(path: str) -> Array:
        return jax.device_put(sum(s * np.asarray(m[path]) for s, m in zip(share, models, strict=True)))

    return {path: mean(path) for path in models[0]}
