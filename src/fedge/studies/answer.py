"""The answer to a plan: what reached the target at which cost, what is recommended and how sure that is.

`answer.json` and `settings.csv` hold it. Nothing in them depends on the hour or the machine's speed, so a plan that was
killed and resumed writes what one that was not writes.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from fedge.runner import files
from fedge.studies.choices import Choices, distinct, name_of
from fedge.studies.csv_text import csv_text
from fedge.studies.exposure import exposure
from fedge.studies.interval import Interval, interval
from fedge.studies.question import Question
from fedge.studies.sensitivity import bottleneck, changes
from fedge.studies.trials import Energy, Spent, Trial, mean_of

ANSWER, SETTINGS = "answer.json", "settings.csv"
LONGER = 3  # times the rounds that the race took, for a seed that is unlucky
COMPARED = 6  # settings whose costs are recomputed with other rates


class Final(NamedTuple):
    """This is one setting on one fresh seed."""

    name: str
    seed: int
    folder: str  # below runs/
    rounds: int
    reached: int | None
    trial: Trial  # with this seed's clock

    @property
    def end(self) -> int:
        """Return the round after which it was at the target, or else its last: it would have taken more."""
        return self.rounds if self.reached is None else self.reached

    @property
    def spent(self) -> Spent:
        """Return what it cost up to there, by the devices, links and delays of its own seed."""
        return self.trial.spent(self.end)


@dataclass(frozen=True, eq=False)
class Answer:
    """This is what came of a plan."""

    out: Path
    question: Question
    choices: Choices
    trials: Mapping[str, Trial]
    fate: Mapping[str, str]
    refused: Mapping[str, str]
    finals: list[Final]
    untrained: float
    steps: int
    budget_spent: bool
    passed_in: tuple[str, ...] = ()  # keys whose values were objects from Python

    @cached_property
    def reached(self) -> dict[str, int]:
        """Return the settings that reached the target on the seed of the race, and after which round."""
        return {name: trial.reached for name, trial in self.trials.items() if trial.reached is not None}

    @cached_property
    def costs(self) -> dict[str, Spent]:
        """Return what each of them cost: a finalist in the mean over its fresh seeds, another in the race.

        A fresh seed that did not get there counts with all it spent, so that such a mean is a lower bound.
        """
        return {name: mean_of([trial.spent(n) for trial, n in self.ends(name)]) for name in self.reached}

    def ends(self, name: str) -> list[tuple[Trial, int]]:
        """List the runs that a setting's cost is the mean of, and after how many rounds each ended."""
        own = [(final.trial, final.end) for final in self.finals if final.name == name]
        return own or [(self.trials[name], self.reached[name])]

    @cached_property
    def raced(self) -> dict[str, Spent]:
        """Return what each cost in the race: on one seed, the same for all."""
        return {name: self.trials[name].spent(rounds) for name, rounds in self.reached.items()}

    @cached_property
    def finalists(self) -> list[str]:
        return list(dict.fromkeys(final.name for final in self.finals))

    @cached_property
    def recommended(self) -> str | None:
        """Name the setting that is cheapest on fresh seeds, of those of which most got there."""
        if not self.reached:
            return None
        return min(self.finalists or self.reached, key=lambda n: (-self._share_there(n), self._price(n)))

    def _share_there(self, name: str) -> float:
        own = [f.reached is not None for f in self.finals if f.name == name]
        return sum(own) / len(own) if own else 0.0

    def _price(self, name: str) -> float:
        return self.question.price(self.costs[name])

    @cached_property
    def front(self) -> list[str]:
        """Name the settings that no other beats in everything: seconds, bytes, client memory, and energy.

        All are held against each other by what they cost in the race: means over other seeds would be unlike those.
        """
        points = {name: self._point(name) for name in self.raced}

        def beaten(name: str) -> bool:
            own = points[name]
            return any(
                other != own and all(a <= b for a, b in zip(other, own, strict=True)) for other in points.values()
            )

        return sorted((name for name in points if not beaten(name)), key=lambda n: self.question.price(self.raced[n]))

    def _point(self, name: str) -> tuple[float, ...]:
        spent = self.raced[name]
        energy = (spent.energy,) if self.question.energy != Energy() else ()
        return (spent.seconds, spent.bytes, self.trials[name].client_memory, *energy)

    def every(self) -> list[tuple[str, dict[str, Any]]]:
        """List all settings that were possible, with all keys of their runs, tried or not."""
        axes = self.choices.axes
        return [(name_of(keys, axes[own]), keys) for own in axes for keys in distinct(self.choices.settings(own))]

    # In words and numbers

    def command(self, name: str) -> str | None:
        """Write what to type to run a setting; None where only Python can, which has the objects passed in."""
        if self.passed_in:
            return None
        trial = self.trials[name]
        rounds = LONGER * (trial.reached or trial.rounds or 1)
        keys = {key: value for key, value in trial.keys.items() if key != "algorithm"} | {"rounds": rounds}
        return shlex.join(["fedge", "run", str(trial.keys["algorithm"]), *(f"{k}={v}" for k, v in keys.items())])

    def over_seeds(self, name: str) -> dict[str, Any]:
        """Say what a setting's fresh seeds came to."""
        own = [f for f in self.finals if f.name == name]
        there = [f.spent for f in own if f.reached is not None]
        intervals = {key: _plain(interval([getattr(s, key) for s in there])) for key in Spent._fields if there}
        return {"seeds": [f.seed for f in own], "reached": len(there), **intervals, "runs": [f.folder for f in own]}

    def against(self, other: str) -> dict[str, Any] | None:
        """Compare the recommended setting with another on the seeds on which both got there."""
        pick = self.recommended
        both = [
            {f.name: self.question.price(f.spent) for f in self.finals if f.seed == seed and f.reached is not None}
            for seed in dict.fromkeys(f.seed for f in self.finals)
        ]
        gaps = [own[other] - own[pick] for own in both if pick in own and other in own]
        return None if not gaps else {"name": other, "seeds": len(gaps), "costs_more": _plain(interval(gaps))}

    def setting(self, name: str) -> dict[str, Any]:
        trial = self.trials[name]
        cost = self.costs.get(name)
        energy = self.question.energy != Energy()
        kinds = Spent._fields if energy else Spent._fields[:2]
        ends = [] if cost is None else self.ends(name)
        finals = [f.reached is not None for f in self.finals if f.name == name]
        fresh = {"of": len(finals), "reached": sum(finals)} if finals else None  # None: its cost is that of the race
        return {
            "name": name,
            "keys": {key: trial.keys[key] for key in ("algorithm", *self.choices.axes[trial.keys["algorithm"]])},
            "reached": name in self.reached,
            "seconds": None if cost is None else cost.seconds,
            "bytes": None if cost is None else cost.bytes,
            "energy": cost.energy if cost is not None and energy else None,
            "client_memory": trial.client_memory,
            "rounds": trial.rounds if cost is None else sum(n for _, n in ends) / len(ends),
            "fresh_seeds": fresh,
            "race": None if cost is None else {key: getattr(self.raced[name], key) for key in kinds},
            "best": trial.best,
            "at_seconds": trial.spent(trial.reached or trial.rounds).seconds,
            "client_steps": trial.steps,
            "fate": self.fate.get(name, "reached the target"),
            "exposes": exposure(trial.made.job.algorithm, trial.made.model.stages),
            "front": name in self.front,
        }

    def to_json(self) -> dict[str, Any]:
        """Return what `answer.json` holds; it is reckoned once, for on the network of a file that takes seconds."""
        return self._json

    @cached_property
    def _json(self) -> dict[str, Any]:
        target = next(iter(self.trials.values())).target
        order = sorted(self.trials, key=lambda n: (n not in self.reached, self._price(n) if n in self.reached else 0))
        return {
            "question": asdict(self.question),
            "keys": self.choices.fixed,
            "target": {"metric": target.metric, "value": target.value, "untrained": self.untrained},
            "effort": {
                "client_steps": self.steps, "budget": self.question.budget, "budget_spent": self.budget_spent,
                "possible": self.choices.size, "tried": len(self.trials), "refused": len(self.refused),
            },
            "choices": {name: self._searched(name) for name in self.choices.axes},
            "recommended": self._recommendation(),
            "front": self.front,
            "settings": [self.setting(name) for name in order],
            "refused": dict(self.refused),
        }  # fmt: skip

    def _searched(self, name: str) -> dict[str, Any]:
        """Say how much of what is possible with an algorithm was tried."""
        tried = sum(trial.keys["algorithm"] == name for trial in self.trials.values())
        values = {key: list(some) for key, some in self.choices.axes[name].items()}
        return {"possible": len(list(self.choices.settings(name))), "tried": tried, "values": values}

    def _recommendation(self) -> dict[str, Any] | None:
        pick = self.recommended
        if pick is None:
            return None
        near = sorted(self.reached, key=self._price)[:COMPARED]
        compared = {name: self.ends(name) for name in dict.fromkeys([pick, *near])}
        found = changes(pick, compared, self.question.price)
        limit = bottleneck(found, self.costs[pick].seconds)
        rivals = [name for name in self.finalists if name != pick]
        rival = min(rivals, key=self._price, default=None)
        return {
            "name": pick,
            "command": self.command(pick),
            "passed_in": list(self.passed_in),
            **{key: getattr(self.costs[pick], key) for key in Spent._fields},
            "over_seeds": self.over_seeds(pick),
            "runner_up": None if rival is None else self.against(rival),
            "bottleneck": None if limit is None else {"rate": limit[0], "saves_when_doubled": limit[1]},
            "changes": [change._asdict() for change in found],
        }

    def write(self) -> None:
        """Write the answer down; `answer.json` comes last, for whoever sees it looks for the other file."""
        files.write_bytes(self.out / SETTINGS, self.csv().encode())
        files.write_json(self.out / ANSWER, self.to_json())

    def csv(self) -> str:
        """Write every setting that was tried as a line of CSV."""
        lines = self.to_json()["settings"]
        keys = list(dict.fromkeys(key for line in lines for key in line["keys"]))
        columns = ("reached", "seconds", "bytes", "energy", "client_memory", "rounds", "best", "client_steps", "front",
                   "fate")  # fmt: skip
        rows = [[*keys, *columns, "fresh_seeds", "exposes"]]
        for line in lines:
            cells = [*(line["keys"].get(key) for key in keys), *(line[key] for key in columns)]
            fresh = line["fresh_seeds"] or {"reached": 0, "of": 0}
            rows.append([*cells, f"{fresh['reached']}/{fresh['of']}", " ".join(line["exposes"])])
        return csv_text(rows)


def _plain(found: Interval) -> dict[str, float | None]:
    ends = {"low": found.low, "high": found.high}
    return {"mean": found.mean} | {k: x if math.isfinite(x) else None for k, x in ends.items()}
