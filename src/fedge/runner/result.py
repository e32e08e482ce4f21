"""A result is what a run comes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from fedge.core import tree
from fedge.errors import ConfigError
from fedge.experiment.build import Experiment
from fedge.experiment.config import Config
from fedge.experiment.target import Reached
from fedge.runner.rows import Row


@dataclass(frozen=True, eq=False)
class Result:
    """A run came to this. `fedge.load` reads it back from the run's folder."""

    algorithm: str
    config: Config
    history: list[Row]
    wall_seconds: float
    compile_seconds: float
    client_steps_per_second: float
    parameters: int
    out: Path
    read_weights: Callable[[], tree.Weights] = field(repr=False)
    make: Callable[[], Experiment] = field(repr=False)
    diverged: bool = False  # then `weights` are the last good ones
    stopped: bool = False  # a listener wished so before the last round; resuming the run goes on
    reached: Reached | None = None  # the target, and at what cost; None where it was not, or where there is none

    @property
    def final(self) -> Row:
        """The newest row of the history."""
        return self.history[-1]

    @cached_property
    def weights(self) -> tree.Weights:
        """The model at the end, an array for each of its parameters; the last good one of a run that diverged."""
        return self.read_weights()

    @cached_property
    def experiment(self) -> Experiment:
        """What the run is made of: data, clients, cells, model, clock."""
        return self.make()

    def plot(self, *others: Result, x: str = "rounds", y: str | None = None) -> Any:
        """Draw a column of the history (the main metric) against rounds, iterations, seconds or bytes, and return
        matplotlib's figure; other results are laid over this one."""
        selected = _look("selected").select([result.out for result in (self, *others)])
        return _look("overlay").overlay(selected, x, y)

    def frame(self) -> Any:
        """Return the history as a pandas DataFrame, a line for each row; needs pandas."""
        try:
            pandas = import_module("pandas")
        except ImportError:
            raise ConfigError("frame() needs pandas; pip install pandas, or take history, a list of rows") from None
        lines = []
        for row in self.history:
            tiers = {f"bytes_{tier}": sent for tier, sent in row["bytes"].items()}
            lines.append({**row, "bytes": sum(tiers.values()), **tiers})
        return pandas.DataFrame(lines)

    def _repr_html_(self) -> str:
        return str(_look("notebook").html_of(self))

    def to_json(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm,
            "config": self.config.model_dump(),
            "history": self.history,
            "final": self.history[-1] if self.history else None,
            "diverged": self.diverged,
            "stopped": self.stopped,
            "reached": None if self.reached is None else self.reached._asdict(),
            "wall_seconds": round(self.wall_seconds, 3),
            "compile_seconds": round(self.compile_seconds, 3),
            "client_steps_per_second": round(self.client_steps_per_second, 1),
            "parameters": self.parameters,
            "out": str(self.out),
        }


def _look(module: str) -> Any:
    """Import a module that shows things, when somebody wants to look: a run needs none of them, and knows none."""
    return import_module(f"fedge.view.{module}")


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
