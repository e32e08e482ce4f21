"""An edge round of very many clients in many calls: their models are summed piece by piece.

XLA's CPU runtime keeps some kB for every matrix product until a call returns (docs/scale.md).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import NamedSharding

from fedge.core.contract import State
from fedge.core.tree import Weights
from fedge.engine.mesh import EVERYWHERE, place
from fedge.engine.seats import Inputs, Slots, taken

if TYPE_CHECKING:
    from fedge.engine.vectorised import Vectorised


class Pieces:
    def __init__(self, engine: Vectorised) -> None:
        self._engine = engine

    def rounds(self, state: State, first: int, count: int) -> tuple[State, float]:
        """As `Engine.rounds`."""
        algorithm, devices = self._engine.job.algorithm, self._engine.mesh.size
        state = place(state, self._engine.mesh, EVERYWHERE)
        inputs, groups = self._engine.inputs(state), self._engine.groups(state)
        loss = 0.0
        for index in range(first, first + count):
            models = self.run("deal", self._dealt, state, np.int32(index), inputs)
            losses = np.zeros(algorithm.schedule.edge_rounds)
            for a in range(len(losses)):
                number, after = np.int32(index * len(losses) + a), []
                for n, (ids, layout) in enumerate(zip(groups, inputs.layouts, strict=True)):
                    size = self._engine.piece_of(len(layout.cell))
                    slots = self.run(f"slots {n}", partial(self._seated, n, len(ids)), number, inputs)
                    sums: Any = None
                    for begin in range(0, -(-len(layout.cell) // devices), size):
                        operands = (models[n], slots, np.int32(begin), number, inputs)
                        more = self.run(f"part {n}", partial(self._part, size), *operands)
                        sums = more if sums is None else self.run("add", _added, sums, more)
                    after.append((sums[0], models[n][1]))
                    losses[a] += algorithm.topology.cell_weight[list(ids)] @ np.asarray(sums[1], float)
                models = tuple(after)
            state = self.run("merge", self._merged, state, np.int32(index), models, inputs)
            loss = float(losses.mean())
        return state, loss

    def run(self, name: str, function: Callable[..., Any], *operands: Any) -> Any:
        """One program at a time: collectives of two that are under way may wait for each other's devices for ever."""
        mesh = self._engine.mesh
        operands = tuple(place(x, mesh, EVERYWHERE) if isinstance(x, np.generic) else x for x in operands)
        everywhere = NamedSharding(mesh, EVERYWHERE)
        program = self._engine.programs.get(name, function, *operands, out_shardings=everywhere)
        return jax.block_until_ready(program(*operands))

    def _dealt(self, state: State, index: Array, inputs: Inputs) -> tuple[tuple[Weights, Weights | None], ...]:
        dealt = self._engine.job.algorithm.deal(state, self._engine.now(index, inputs))
        return tuple((cells.weights, cells.mask) for cells in dealt)

    def _seated(self, group: int, cells: int, number: Array, inputs: Inputs) -> Slots:
        """The slots of an edge round, a row for each device."""
        layout, devices = inputs.layouts[group], self._engine.mesh.size
        pad = devices * self._engine.piece_of(len(layout.cell))
        slots = taken(cells, layout, number, inputs, self._engine.job.participation, pad)
        return jax.tree.map(lambda x: x.reshape(devices, -1), slots)

    def _part(
        self, size: int, cells: tuple[Weights, Weights | None], slots: Slots, begin: Array, number: Array,
        inputs: Inputs,
    ) -> tuple[Weights, Array]:  # fmt: skip
        """Sums over a piece of each device's slots."""
        piece = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, begin, size, axis=1).reshape(-1), slots)
        return self._engine.summed(*cells, piece, 1, number, inputs, whole=False)

    def _merged(self, state: State, index: Array, models: Any, inputs: Inputs) -> State:
        algorithm, now = self._engine.job.algorithm, self._engine.now(index, inputs)
        dealt = algorithm.deal(state, now)
        trained = tuple(cells._replace(weights=w) for cells, (w, _) in zip(dealt, models, strict=True))
        return algorithm.merge(state, trained, now)


def _added(a: Any, b: Any) -> Any:
    return jax.tree.map(jnp.add, a, b)
