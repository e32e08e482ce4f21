"""Several jobs of one shape in one program on one device: seeds or rates that alone would leave a GPU idle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from fedge.core.client import Data
from fedge.core.contract import State
from fedge.engine import placement
from fedge.engine.base import Job
from fedge.engine.mesh import EVERYWHERE, SPREAD, mesh_of, place
from fedge.engine.programs import Programs
from fedge.engine.seats import Inputs, arranged
from fedge.engine.vectorised import Vectorised

# Samples are the same for all; whose they are, the seed and the rest differ.
AXES = Inputs(0, 0, Data(None, None, 0, 0, 0), *[0] * 5)  # type: ignore[arg-type]


class Together:
    """States and losses lie along a leading axis, a job's beside the other's. Jobs must share their samples."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._engine = Vectorised(jobs[0])
        if self._engine.layout["devices"] != 1:
            raise ValueError("jobs run together on one device only")
        self._mesh = mesh_of(1)
        self._programs = Programs()
        self._samples: tuple[Any, Any] = (None, None)
        self.retarget(jobs)

    def retarget(self, jobs: Sequence[Job]) -> None:
        """Go on with other jobs of the same shape, as many of them."""
        if any(job.data.x is not jobs[0].data.x for job in jobs):
            raise ValueError("jobs that run together train on the same samples")
        self._jobs = tuple(jobs)
        self._inputs: Inputs | None = None

    def start(self, states: Sequence[State]) -> State:
        return place(jax.tree.map(lambda *each: jnp.stack(each), *states), self._mesh, EVERYWHERE)

    def rounds(self, states: State, first: int, count: int) -> tuple[State, NDArray[Any]]:
        """As `Engine.rounds`, for every job."""
        program, inputs = self.compiled(states)
        span = place((np.int32(first), np.int32(first + count)), self._mesh, EVERYWHERE)
        after, losses = program(states, span, inputs)
        return after, np.asarray(losses, float)

    def compiled(self, states: State) -> tuple[Any, Inputs]:
        """The program, compiled unless it is there, and what it reads."""
        self._inputs = self._inputs or self._prepared(states)
        function = jax.vmap(self._engine.program, (0, None, AXES))
        return self._programs.get("rounds", function, states, (np.int32(0), np.int32(1)), self._inputs), self._inputs

    @property
    def compile_seconds(self) -> float:
        return self._programs.seconds

    def _prepared(self, states: State) -> Inputs:
        groups = self._engine.groups(jax.tree.map(lambda x: x[0], states))
        rest = jax.tree.map(_stacked, *(arranged(job, groups) for job in self._jobs))
        data = [placement.whole(job.data) for job in self._jobs]
        if self._samples[0] is not self._jobs[0].data.x:
            self._samples = self._jobs[0].data.x, place(data[0][:2], self._mesh, SPREAD)
        own = [np.stack([getattr(d, name) for d in data]) for name in ("order", "start", "size")]
        whole = Data(*self._samples[1], *place(own, self._mesh, EVERYWHERE))
        return place(rest, self._mesh, EVERYWHERE)._replace(data=whole)


def _stacked(*each: Any) -> Any:
    return jnp.stack(each) if isinstance(each[0], Array) else np.stack(each)
