"""The naive engine loops in Python over cells, clients and steps, in the order a reader would write them.

It is slow and obvious on purpose. The vectorised engine must agree with it to rounding, in float32 and in float64.
Its averages are numpy's, which need no compiling.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedge.core import tree
from fedge.core.contract import Round, Sharing, State
from fedge.core.keys import Purpose, fold
from fedge.core.sampling import draw_participants
from fedge.core.tree import Weights
from fedge.engine.base import Engine, Job


class Reference(Engine):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        task = job.task
        self.retarget(job)
        self._gradient = jax.jit(task.gradient)
        self._update = jax.jit(task.update)
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

        stacks = algorithm.deal(state, now)
        loss = 0.0
        for a in range(schedule.edge_rounds):
            first = index * schedule.period + a * schedule.local_steps
            trained = []
            for stack in stacks:
                models = []
                for position, cell in enumerate(stack.ids):
                    model = _at(position, stack.weights)
                    mask = None if stack.mask is None else _at(position, stack.mask)
                    model, cell_loss = self._edge_round(model, mask, cell, first, index * schedule.edge_rounds + a)
                    models.append(model)
                    loss += float(algorithm.topology.cell_weight[cell]) * cell_loss / schedule.edge_rounds
                weights = {path: jax.device_put(np.stack([m[path] for m in models])) for path in models[0]}
                trained.append(stack._replace(weights=weights))
            stacks = tuple(trained)
        return algorithm.merge(state, stacks, now), loss

    def _edge_round(
        self, model: Weights, mask: Weights | None, cell: int, first: int, number: int
    ) -> tuple[Weights, float]:
        """Make `local_steps` in one cell, all clients in lockstep, then average those that took part."""
        job, task, shared = self.job, self.job.task, self.job.algorithm.shared or (lambda path: False)
        steps, lr = job.algorithm.schedule.local_steps, jnp.asarray(job.lr, task.dtype)
        (drawn,) = draw_participants(job.key, job.algorithm.topology.roster, [number], job.participation)
        clients = drawn[cell].tolist()
        weight = [float(job.algorithm.topology.weight[i]) for i in clients]
        share = [w / sum(weight) for w in weight]

        replicas = [dict(model) for _ in clients]
        memories = [task.fresh(lr, model) for _ in clients]
        batches = [self._indices(job.key, job.data, jnp.int32(i), jnp.int32(first), steps) for i in clients]
        sharing = job.algorithm.sharing
        if sharing is Sharing.SEQUENTIAL:
            return self._one_after_the_other(model, mask, clients, share, batches, first)
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
            for n in range(len(clients)):
                replicas[n], memories[n] = self._update(lr, replicas[n], memories[n], gradients[n], statistics[n], mask)
            if sharing is Sharing.COPIES:
                mean = _mean(share, [tree.split(r, shared)[0] for r in replicas])
                replicas = [r | mean for r in replicas]
        return _mean(share, replicas), loss

    def _one_after_the_other(
        self, model: Weights, mask: Weights | None, clients: list[int], share: list[float], batches: list[Array],
        first: int,
    ) -> tuple[Weights, float]:  # fmt: skip
        """Do the same, but at each step one client after the other steps what the cell shares."""
        job, task, shared = self.job, self.job.task, self.job.algorithm.shared or (lambda path: False)
        steps, lr = job.algorithm.schedule.local_steps, jnp.asarray(job.lr, task.dtype)
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
                replicas[n], memories[n] = self._update(lr, replicas[n], memories[n], g_own, s_own, mask)
                loss += share[n] * float(value) / steps
        return _mean(share, replicas) | common, loss


def _at(position: int, stacked: Weights) -> Weights:
    return {path: np.asarray(w)[position] for path, w in stacked.items()}


def _mean(share: list[float], models: list[Weights]) -> Weights:
    def mean(path: str) -> Array:
        return jax.device_put(sum(s * np.asarray(m[path]) for s, m in zip(share, models, strict=True)))

    return {path: mean(path) for path in models[0]}
