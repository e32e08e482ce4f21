"""A global round of very many clients is made in several calls, each of which sums a part of every device's clients.

XLA's CPU runtime keeps some kB for every matrix product until a call returns (docs/scale.md), so none may be long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count as count_from
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import NamedSharding

from fedge.core.contract import Stack, State
from fedge.core.tree import Weights
from fedge.engine.base import Pulse
from fedge.engine.compiled import CompiledPrograms
from fedge.engine.inputs import Cells, Inputs, Slots
from fedge.engine.mesh import REPLICATED, place
from fedge.engine.round import TracedRound


@dataclass(frozen=True, eq=False)
class SeveralCalls:
    traced: TracedRound
    programs: CompiledPrograms
    steps_per_call: int

    def rounds(self, state: State, inputs: Inputs, first: int, count: int, pulse: Pulse) -> tuple[State, float]:
        """Do what `Engine.rounds` does; state and inputs lie on the devices. `pulse` is called after each call."""
        schedule, weight = self.traced.algorithm.schedule, self.traced.algorithm.topology.cell_weight
        calls = schedule.edge_rounds * sum(len(self._begins(n)) for n in range(len(self.traced.stacks)))
        loss, steps_edges = 0.0, self.traced.algorithm.way.edge_server is not None
        for index in range(first, first + count):
            called = _counter(pulse, index, calls)
            dealt = self.run("deal", self._deal, state, np.int32(index), inputs)
            models, losses = tuple(cells.weights for cells in dealt), np.zeros(schedule.edge_rounds)
            moments = self.run("moments", self.traced.edge_moments, dealt) if steps_edges else ()
            for a in range(schedule.edge_rounds):
                number = np.int32(index * schedule.edge_rounds + a)
                sums = [self._edge_round(n, cells._replace(weights=w), number, inputs, called)
                        for n, (w, cells) in enumerate(zip(models, dealt, strict=True))]  # fmt: skip
                before, models = models, tuple(weights for weights, _ in sums)
                if steps_edges:
                    models, moments = self.run("step", self.traced.step_edges, dealt, before, models, moments)
                for ids, (_, per_cell) in zip(self.traced.stacks, sums, strict=True):
                    losses[a] += weight[list(ids)] @ np.asarray(per_cell, float)
            state = self.run("merge", self._merge, state, np.int32(index), models, inputs)
            loss = float(losses.mean())
        return state, loss

    def slots_per_call(self, n: int) -> int:
        """Count a device's slots of stack `n` in one call: they go into as few, equally long calls as may be."""
        own = self._slots_per_device(n)
        calls = -(-own * self.traced.algorithm.schedule.local_steps // self.steps_per_call)
        return -(-own // calls)

    def _begins(self, n: int) -> range:
        """Return each call's first slot in an edge round."""
        return range(0, self._slots_per_device(n), self.slots_per_call(n))

    def _slots_per_device(self, n: int) -> int:
        return -(-sum(self.traced.active(n)) // self.traced.mesh.size)

    def _edge_round(
        self, n: int, cells: Cells, number: Any, inputs: Inputs, called: Callable[[], None]
    ) -> tuple[Weights, Array]:
        if self.traced.algorithm.way.downlink is not None:
            handed = self.run(f"hand {n}", partial(self.traced.handed, n), cells.weights, number, inputs)
            cells = cells._replace(weights=handed)
        slots = self.run(f"slots {n}", partial(self._slots, n), number, inputs)
        sums: Any = None
        for begin in self._begins(n):
            part = self.run(f"part {n}", partial(self._part, n), cells, slots, np.int32(begin), number, inputs)
            sums = part if sums is None else self.run("add", _add, sums, part)
            called()
        return sums

    def run(self, name: str, function: Callable[..., Any], *operands: Any) -> Any:
        """Run one program at a time: collectives of two under way may wait for each other's devices for ever."""
        mesh = self.traced.mesh
        operands = tuple(place(x, mesh, REPLICATED) if isinstance(x, np.generic) else x for x in operands)
        program = self.programs.get(name, function, *operands, out_shardings=NamedSharding(mesh, REPLICATED))
        return jax.block_until_ready(program(*operands))

    # What is compiled

    def _deal(self, state: State, index: Array, inputs: Inputs) -> tuple[Cells, ...]:
        dealt, far = self.traced.deal(state, index, inputs), self.traced.algorithm.way.prox_to_round
        return tuple(Cells(stack.weights, stack.mask, stack.weights if far else None) for stack in dealt)

    def _slots(self, n: int, number: Array, inputs: Inputs) -> Slots:
        """Draw the slots of an edge round, a row for each device."""
        devices = self.traced.mesh.size
        slots = self.traced.slots(n, number, inputs, pad_to=devices * self.slots_per_call(n))
        return jax.tree.map(lambda x: x.reshape(devices, -1), slots)

    def _part(
        self, n: int, cells: Cells, slots: Slots, begin: Array, number: Array, inputs: Inputs
    ) -> tuple[Weights, Array]:
        """Train a part of each device's slots, and sum it."""
        size = self.slots_per_call(n)
        part = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, begin, size, axis=1).reshape(-1), slots)
        return self.traced.sums(cells, part, 1, number, inputs, whole=False)

    def _merge(self, state: State, index: Array, models: tuple[Weights, ...], inputs: Inputs) -> State:
        dealt: tuple[Stack, ...] = self.traced.deal(state, index, inputs)
        return self.traced.merge(state, dealt, models, index, inputs)


def _counter(pulse: Pulse, index: int, calls: int) -> Callable[[], None]:
    """Make what tells `pulse`, call by call, how much of a round is done."""
    made = count_from(1)
    return lambda: pulse(index, next(made) / calls)


def _add(a: Any, b: Any) -> Any:
    return jax.tree.map(jnp.add, a, b)
