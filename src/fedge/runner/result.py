"""A result is what a run comes to; a listener is told while it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedge.core import tree
from fedge.experiment.build import Experiment
from fedge.experiment.config import Config
from fedge.experiment.target import Reached
from fedge.runner.rows import Row


@dataclass(frozen=True, eq=False)
class Result:
    algorithm: str
    config: Config
    history: list[Row]
    wall_seconds: float
    compile_seconds: float
    client_steps_per_second: float
    parameters: int
    out: Path
    weights: tree.Weights = field(repr=False)
    experiment: Experiment = field(repr=False)
    diverged: bool = False  # then `weights` are the last good ones
    reached: Reached | None = None  # the target, and at what cost; None where it was not, or where there is none

    @property
    def final(self) -> Row:
        return self.history[-1]

    def to_json(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm,
            "config": self.config.model_dump(),
            "history": self.history,
            "final": self.history[-1] if self.history else None,
            "diverged": self.diverged,
            "reached": None if self.reached is None else self.reached._asdict(),
            "wall_seconds": round(self.wall_seconds, 3),
            "compile_seconds": round(self.compile_seconds, 3),
            "client_steps_per_second": round(self.client_steps_per_second, 1),
            "parameters": self.parameters,
            "out": str(self.out),
        }


def target_columns(result: Mapping[str, Any]) -> dict[str, int | float | None]:
    """Return what a table says of a run's target, from the object in its result.json; nothing where it has none.

    A column is None where the target was not reached.
    """
    if result["config"].get("target") is None:
        return {}
    reached = result.get("reached")
    if reached is None:
        return dict.fromkeys(("target_round", "target_iteration", "target_seconds", "target_bytes"))
    return {
        "target_round": reached["round"],
        "target_iteration": reached["iteration"],
        "target_seconds": reached["simulated_seconds"],
        "target_bytes": sum(reached["bytes"].values()),
    }


class Listener:
    """A listener is told how a run goes on. The default listens to nothing."""

    def study(self, runs: int, done: int) -> None:
        """A study of so many runs goes on; this many of them are over already."""

    def ready(self, experiment: Experiment, out: Path) -> None: ...
    def part(self, number: int, part: float, config: Config) -> None:
        """This part (0 to 1) of round `number` is done; only rounds that last long say so."""

    def round(self, row: Row, config: Config) -> None: ...
    def finished(self, result: Result) -> None: ...
