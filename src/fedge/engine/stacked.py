"""Several jobs of one shape become one program on one device: seeds or rates that alone would leave a GPU idle."""

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
from fedge.engine.compiled import CompiledPrograms
from fedge.engine.inputs import Inputs, host_inputs
from fedge.engine.mesh import BY_DEVICE, REPLICATED, mesh_of, place
from fedge.engine.round import TracedRound, cells_dealt, first_chunk

# Samples are the same for all jobs; whose they are, the seed and the rest differ.
JOB_AXIS = Inputs(
    key=0,
    lr=0,
    data=Data(x=None, y=None, order=0, start=0, size=0),
    tables=0,
    roster=0,
    weight=0,
    cell_weight=0,
    constants=0,
)


class Stacked:
    """States and losses lie along a leading axis, one job's beside the other's. Jobs must share their samples."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        if mesh_of(jobs[0].devices).size != 1:
            raise ValueError("jobs run together on one device only")
        self._mesh = mesh_of(1)
        self._programs = CompiledPrograms()
        self._samples: tuple[Any, Any] = (None, None)  # as the jobs have them, and as they lie on the device
        self.retarget(jobs)

    def retarget(self, jobs: Sequence[Job]) -> None:
        """Go on with other jobs of the same shape, as many of them."""
        if any(job.data.x is not jobs[0].data.x for job in jobs):
            raise ValueError("jobs that run together train on the same samples")
        self._jobs = tuple(jobs)
        self._inputs: Inputs | None = None

    def start(self, states: Sequence[State]) -> State:
        return place(jax.tree.map(lambda *each: jnp.stack(each), *states), self._mesh, REPLICATED)

    def rounds(self, states: State, first: int, count: int) -> tuple[State, NDArray[Any]]:
        """Do what `Engine.rounds` does, for every job."""
        program, inputs = self.compile(states)
        span = place((np.int32(first), np.int32(first + count)), self._mesh, REPLICATED)
        after, losses = program(states, span, inputs)
        return after, np.asarray(losses, float)

    def compile(self, states: State) -> tuple[Any, Inputs]:
        """Compile the program unless it is there; return it and what it reads."""
        job, state = self._jobs[0], jax.tree.map(lambda x: x[0], states)
        if self._inputs is None:
            self._inputs = self._place_inputs(cells_dealt(job, state))

        def rounds(states: State, span: tuple[Array, Array], inputs: Inputs) -> tuple[State, Array]:
            traced = TracedRound.of(job, state, self._mesh, first_chunk(job, self._mesh))
            return jax.vmap(traced.rounds, (0, None, JOB_AXIS))(states, span, inputs)

        span = (np.int32(0), np.int32(1))
        return self._programs.get("rounds", rounds, states, span, self._inputs), self._inputs

    @property
    def compile_seconds(self) -> float:
        return self._programs.seconds

    def _place_inputs(self, stacks: Sequence[tuple[int, ...]]) -> Inputs:
        rest = jax.tree.map(_stack, *(host_inputs(job, stacks) for job in self._jobs))
        data = [placement.for_one_device(job.data) for job in self._jobs]
        if self._samples[0] is not self._jobs[0].data.x:
            self._samples = self._jobs[0].data.x, place(data[0][:2], self._mesh, BY_DEVICE)
        own = [np.stack([getattr(d, name) for d in data]) for name in ("order", "start", "size")]
        whole = Data(*self._samples[1], *place(own, self._mesh, REPLICATED))
        return place(rest, self._mesh, REPLICATED)._replace(data=whole)


def _stack(*each: Any) -> Any:
    return jnp.stack(each) if isinstance(each[0], Array) else np.stack(each)
