"""The fast engine compiles `round.TracedRound`, finds out how much of it fits, and calls it.

What is decided here, on the host: how many clients train side by side on a device, how many rounds one call makes,
whose samples lie where.
"""

from __future__ import annotations

import logging

import jax
import numpy as np
from jax.errors import JaxRuntimeError
from jax.sharding import NamedSharding
from numpy.typing import NDArray

from fedge.core.contract import State
from fedge.engine import placement
from fedge.engine.base import Engine, Job
from fedge.engine.compiled import CompiledPrograms
from fedge.engine.inputs import Inputs, host_inputs
from fedge.engine.memory import DoesNotFit, require_room
from fedge.engine.mesh import REPLICATED, mesh_of, on_cpu, place, place_state, state_shardings
from fedge.engine.round import TracedRound, first_chunk
from fedge.engine.several_calls import SeveralCalls

log = logging.getLogger(__name__)
STEPS_PER_CALL = 4_000  # of a device; with several, XLA's CPU runtime keeps some kB for each until a call returns


class Vectorised(Engine):
    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.mesh = mesh_of(job.devices)
        self.programs = CompiledPrograms()
        self._chunks = chunk_sizes(job, first_chunk(job, self.mesh), self.mesh.size)  # the one in use, and smaller ones
        self._ready: tuple[TracedRound, Inputs] | None = None

    def retarget(self, job: Job) -> None:
        """Go on with another job of the same shape (another seed, learning rate or partition) without compiling."""
        super().retarget(job)
        self._ready = None

    @property
    def compile_seconds(self) -> float:
        return self.programs.seconds

    @property
    def layout(self) -> dict[str, int]:
        return {"devices": self.mesh.size, "chunk": self._chunks[0] or self.job.algorithm.topology.clients}

    def rounds(self, state: State, first: int, count: int) -> tuple[State, float]:
        """Make rounds in one call; in several on a CPU, which holds memory for each step until a call returns."""
        if self.splits_a_round:
            state = place(state, self.mesh, REPLICATED)
            traced, inputs = self.prepare(state)
            return SeveralCalls(traced, self.programs, STEPS_PER_CALL).rounds(state, inputs, first, count, self.pulse)
        steps = max(1, self.job.steps_per_round // self.mesh.size)
        most = max(1, STEPS_PER_CALL // steps) if on_cpu(self.mesh) else max(1, count)
        loss = 0.0
        for begin in range(first, first + max(count, 1), most):
            state, loss = self._call(state, begin, min(most, first + count - begin))
        return state, loss

    @property
    def splits_a_round(self) -> bool:
        """Say whether an edge round is so long that it takes several calls."""
        schedule = self.job.algorithm.schedule
        slots = self.job.steps_per_round // schedule.period // self.mesh.size
        algorithm = self.job.algorithm
        alone = algorithm.shared is None and self._chunks[0] == 1 and not algorithm.way.collects
        return on_cpu(self.mesh) and alone and slots * schedule.local_steps > 2 * STEPS_PER_CALL

    def _call(self, state: State, first: int, count: int) -> tuple[State, float]:
        """Make these rounds with the first chunk size that fits, and stay with it."""
        state = place_state(state, self.mesh)
        span = place((np.int32(first), np.int32(first + count)), self.mesh, REPLICATED)
        while True:
            traced, inputs = self.prepare(state)
            try:
                program = self.programs.get(
                    f"rounds {traced.compiled_in}", traced.rounds, state, span, inputs,
                    check=lambda program: require_room(program, self.mesh),
                    out_shardings=(state_shardings(state, self.mesh), NamedSharding(self.mesh, REPLICATED)),
                )  # fmt: skip
                after, loss = program(state, span, inputs)
                return after, float(loss)
            except (DoesNotFit, JaxRuntimeError) as problem:
                why = out_of_memory(problem)
                if why is None or len(self._chunks) == 1:
                    raise
            tried = self.layout["chunk"]
            del self._chunks[0]
            self._ready = None
            log.warning("chunk=%d %s; going on with chunk=%d", tried, why, self._chunks[0])
            if self.splits_a_round:  # now that clients are taken one at a time, and samples will lie accordingly
                return self.rounds(state, first, count)

    def prepare(self, state: State) -> tuple[TracedRound, Inputs]:
        """Return what is compiled and, on the devices, all that it reads; made once for a job and a chunk size."""
        if self._ready is None:
            traced = TracedRound.of(self.job, state, self.mesh, self._chunks[0])
            if self._one_memory:
                data = placement.share(self.job.data, self.mesh)
            else:
                data = placement.distribute(self.job.data, self._residents(traced), self.mesh)
            rest = place(host_inputs(self.job, traced.stacks), self.mesh, REPLICATED)
            self._ready = traced, rest._replace(data=data)
        return self._ready

    @property
    def _one_memory(self) -> bool:
        return on_cpu(self.mesh) and jax.process_count() == 1

    def _residents(self, traced: TracedRound) -> list[NDArray[np.int32]]:
        """Find out who may train on each device."""
        job, roster, devices = self.job, self.job.algorithm.topology.roster, self.mesh.size
        calls = SeveralCalls(traced, self.programs, STEPS_PER_CALL) if self.splits_a_round else None
        residents: list[list[NDArray[np.int32]]] = [[] for _ in range(devices)]
        for n, ids in enumerate(traced.stacks):
            if job.algorithm.shared is None:
                grain = calls.slots_per_call(n) if calls else traced.chunk_of(n)
                drawn = job.participation < 1
                found = placement.clients_by_slot(ids, traced.active(n), drawn, roster, devices, grain)
            else:
                found = placement.clients_by_cell(ids, roster, devices)
            for own, clients in zip(residents, found, strict=True):
                own.append(clients)
        return [np.concatenate(parts) for parts in residents]


def chunk_sizes(job: Job, first: int, devices: int) -> list[int]:
    """Return how many clients a device may train side by side: the first choice (0 is all), then ever half as many,
    down to one client or, where clients share a part of their cell's model, to one cell."""
    sizes = [len(r) for r in job.algorithm.topology.roster]
    least = 1 if job.algorithm.shared is None else max(sizes)
    found, own = [first], -(-sum(sizes) // devices)
    size = min(first or own, own)
    while size > least:
        size = -(-size // 2)
        found.append(size)
    return found


def out_of_memory(problem: DoesNotFit | Exception) -> str | None:
    """Say in half a sentence that memory was lacking; None if that is not what happened, or not to all processes."""
    if isinstance(problem, DoesNotFit):
        return problem.why
    alone = jax.process_count() == 1  # other processes would not know that this one takes another chunk
    return "did not fit" if alone and str(problem).startswith("RESOURCE_EXHAUSTED") else None
