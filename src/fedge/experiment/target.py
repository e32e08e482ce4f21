"""A target is a value of a metric at which a run ends, found evaluation by evaluation from the rows of its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fedge.core.objective import TASKS, Objective
from fedge.data.csv_file import reads_as_number
from fedge.data.own_data import is_table
from fedge.errors import ConfigError, brief, suggestion

if TYPE_CHECKING:
    from fedge.experiment.config import Config

Row = Mapping[str, Any]


class Reached(NamedTuple):
    """This says when a run was at its target, and what it had cost until then."""

    metric: str
    target: float
    mean_of: int
    value: float  # the mean of that many evaluations
    round: int
    iteration: int
    simulated_seconds: float
    bytes: dict[str, int]  # per tier


@dataclass(frozen=True)
class Target:
    metric: str
    value: float
    mean_of: int  # evaluations
    higher_is_better: bool

    def is_met(self, rows: Sequence[Row]) -> bool:
        """Say whether the newest rows are at the target: a run that ends there asks after each."""
        return self._mean(rows[-self.mean_of :]) is not None

    def reached(self, rows: Sequence[Row]) -> Reached | None:
        """Find the first evaluation at which the target was met, if there is one."""
        for end in range(self.mean_of, len(rows) + 1):
            mean, row = self._mean(rows[end - self.mean_of : end]), rows[end - 1]
            if mean is not None:
                when = (row["round"], row["iteration"], row["simulated_seconds"], dict(row["bytes"]))
                return Reached(self.metric, self.value, self.mean_of, mean, *when)
        return None

    def _mean(self, rows: Sequence[Row]) -> float | None:
        """Return the mean of these evaluations, if there are enough and it is as good as the target."""
        values = [float(row[self.metric]) for row in rows if row.get(self.metric) is not None]
        if len(values) < self.mean_of:
            return None
        mean = sum(values) / len(values)
        good = mean >= self.value if self.higher_is_better else mean <= self.value
        return mean if good else None


def find_target(config: Config, objective: Objective, *, edges_keep_models: bool) -> Target | None:
    """Return what a run is to reach; refuse a metric that it does not record, and a value that no run can have."""
    if config.target is None:
        return None
    columns = _columns(config, objective, edges_keep_models)
    name = config.target_metric or objective.main
    if name not in columns:
        raise ConfigError(
            f"target_metric={brief(name)} is not recorded by this run; it records {', '.join(columns)}, and more with "
            f"train_eval=true or metrics=clients,f1{suggestion(name, columns)}"
        )
    if config.task in TASKS and (limit := _limit(name)) and not limit.low < config.target <= limit.high:
        raise ConfigError(f"target={config.target:g} is no {name} that a run could reach; give a number {limit.words}")
    return Target(name, config.target, config.target_mean, columns[name])


def _columns(config: Config, objective: Objective, edges_keep_models: bool) -> dict[str, bool]:
    """Name the columns of a row that may be a target, and say of each whether higher is better."""
    found = {name: objective.metric(name).higher_is_better for name in objective.names} | {"train_loss": False}
    if config.train_eval:
        found |= {"global_loss": False, "objective": False}
    if edges_keep_models:
        found |= {f"edge_{objective.main}": found[objective.main], "consensus": False}
    if "f1" in config.metrics.split(","):
        found["macro_f1"] = True
    if "clients" in config.metrics.split(","):
        own = objective.of_groups
        found |= {f"client_{own}": found[own], f"worst_tenth_{own}": found[own]}
    return found


class _Limit(NamedTuple):
    low: float
    high: float
    words: str


def _limit(name: str) -> _Limit:
    """Return between which numbers one of fedge's own metrics lies."""
    if name == "macro_f1" or name.endswith("accuracy"):
        return _Limit(0, 1, "above 0 and up to 1")
    if name.endswith("r2"):
        return _Limit(float("-inf"), 1, "up to 1")
    return _Limit(0, float("inf"), "above 0")


def part_target(given: dict[str, Any]) -> dict[str, Any]:
    """Take `target=WORD`, where data are a table, for the column that is predicted: `target_column=WORD`."""
    word = given.get("target")
    if not isinstance(word, str) or reads_as_number(word):
        return given
    if not is_table(str(given.get("data"))):
        raise ConfigError(
            f"target={brief(word)} is no number to reach, and a column only of data=FILE.csv; give a number such as "
            "0.8, or leave target out"
        )
    if given.get("target_column", word) != word:
        raise ConfigError(f"target={brief(word)} and target_column={brief(given['target_column'])} both name the "
                          "column that is predicted; give one of them")  # fmt: skip
    return {key: value for key, value in given.items() if key != "target"} | {"target_column": word}
