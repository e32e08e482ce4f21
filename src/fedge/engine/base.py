"""This says what every engine is given and what it must do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from jax import Array

from fedge.core.client import Data, Task
from fedge.core.contract import Algorithm, State
from fedge.core.sampling import participants


@dataclass(frozen=True, eq=False)
class Job:
    """This is one training job: the same value gives the same model on every engine."""

    algorithm: Algorithm
    task: Task
    data: Data
    key: Array  # the seed's root key
    lr: float
    participation: float = 1.0
    chunk: int = 0  # clients trained side by side on a device; 0: the engine's choice
    devices: int = 0  # 0: all there are

    @property
    def steps_per_round(self) -> int:
        """Count the clients' SGD steps in a global round."""
        active = sum(participants(len(r), self.participation) for r in self.algorithm.topology.roster)
        return active * self.algorithm.schedule.period


Pulse = Callable[[int, float], None]  # a global round, and what part of it is done


class Engine(ABC):
    def __init__(self, job: Job) -> None:
        self.job = job
        # Called now and then inside a round that is made in several calls; what it raises gives the round up.
        self.pulse: Pulse = lambda index, part: None

    @property
    def compile_seconds(self) -> float:
        """Return the seconds spent on compiling, all in all."""
        return 0.0

    @property
    def layout(self) -> dict[str, int]:
        """Say how the work lies on this machine; with the same layout a run is the same bit for bit."""
        return {"devices": 1, "chunk": 1}

    def retarget(self, job: Job) -> None:
        """Go on with another job of the same shape."""
        self.job = job

    @abstractmethod
    def rounds(self, state: State, first: int, count: int) -> tuple[State, float]:
        """Make global rounds `first`, `first` + 1, …; return the state after them and the last one's mean loss."""

    def round(self, state: State, index: int) -> tuple[State, float]:
        return self.rounds(state, index, 1)
