"""Trials of a plan: settings that train lap by lap, whose costs are known beforehand, and that are remembered.

`trials.jsonl` has a line for each lap of each setting: how far it was trained, at what price in client steps, and its
tests. The newest state of a setting lies in `states/` until it is out of the race. A plan that was killed asks for the
same laps again, gets those from the file, and trains on from the states: the outcome is that of one that was not.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedge.core.contract import State
from fedge.cost.clock import Clock, late_factors
from fedge.engine.mesh import here
from fedge.errors import ConfigError, RunError, StoppedError
from fedge.experiment.build import Experiment
from fedge.experiment.checks import most_rounds
from fedge.experiment.target import Target
from fedge.runner import checkpoint, files
from fedge.runner.cache import ProgramCache
from fedge.runner.costs import Costs
from fedge.runner.identity import canonical, digest_of
from fedge.runner.loop import Alone, is_finite, stretches
from fedge.runner.metrics import Metrics
from fedge.runner.rows import Row
from fedge.runner.signals import StopRequest
from fedge.studies.ahead import Ahead, Runner, goal_of, race_ahead
from fedge.studies.race import BudgetSpentError, Standing

TRIALS, STATES = "trials.jsonl", "states"
OF_CLIENTS = ("client_to_edge", "edge_to_client", "client_to_cloud", "cloud_to_client", "labels_to_edge")
Tell = Callable[[str, int, int, int, Ahead], None]
"""It hears (what goes on, parts of it that are done, of how many, client steps so far, what is still ahead)."""
log = logging.getLogger(__name__)


class Spent(NamedTuple):
    """This is what a setting has cost after some rounds."""

    seconds: float
    bytes: float  # of all tiers
    energy: float  # of all clients, in joules; 0 where no rates are given


def mean_of(each: Sequence[Spent]) -> Spent:
    return Spent(*(sum(column) / len(each) for column in zip(*each, strict=True)))


@dataclass(frozen=True)
class Energy:
    """These are the rates by which clients' energy is counted."""

    client_watts: float = 0.0  # while a client computes
    joules_per_mb: float = 0.0  # that a client sends or is sent

    def of_round(self, made: Experiment, index: int, sent: Mapping[str, int]) -> float:
        """Return the joules of all clients in global round `index`, in which these bytes were sent."""
        megabytes = sum(sent.get(tier, 0) for tier in OF_CLIENTS) / 1e6
        busy = _busy_seconds(made, index) if self.client_watts else 0.0
        return self.client_watts * busy + self.joules_per_mb * megabytes


def _busy_seconds(made: Experiment, index: int) -> float:
    """Return the seconds that all clients compute in a round, each as fast and as late as the clock has it."""
    algorithm, clock = made.job.algorithm, made.clock
    cell, cut = algorithm.topology.cell, clock.ledger.cut
    share = np.broadcast_to(clock.work, algorithm.topology.cells)[cell] * (1.0 if cut is None else cut.client_work)
    if isinstance(clock, Clock):
        step, straggle = clock.rates.step_seconds * clock.slowness[0], clock.rates.straggle
    else:
        step, straggle = clock.step.client, clock.straggle
    seconds, rounds = 0.0, algorithm.schedule.edge_rounds
    for number in range(index * rounds, (index + 1) * rounds):
        present = np.concatenate(clock.ledger.participants(number))
        late = late_factors(clock.seed, number, len(cell), straggle)
        seconds += float((share * step * late)[present].sum())
    return algorithm.schedule.local_steps * seconds


@dataclass
class Trial:
    """This is one setting: what it is, what it costs, and how far it has come."""

    keys: dict[str, Any]
    made: Experiment
    energy: Energy
    client_memory: int
    deadline: float = math.inf
    rounds: int = 0
    rows: list[Row] = field(default_factory=list)
    diverged: bool = False
    steps: int = 0  # clients' SGD steps so far
    _spent: list[Spent] = field(default_factory=lambda: [Spent(0.0, 0, 0.0)])
    _sent: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._costs, self.training = Costs(self.made), Costs(self.made)

    @property
    def target(self) -> Target:
        assert self.made.target is not None
        return self.made.target

    @property
    def every(self) -> int:
        return self.made.config.eval_every

    def spent(self, rounds: int) -> Spent:
        """Return what so many rounds cost; nothing is trained for it."""
        while len(self._spent) <= rounds:
            after = self._costs.after(len(self._spent))
            new = {tier: size - self._sent.get(tier, 0) for tier, size in after.sent.items()}
            energy = self._spent[-1].energy + self.energy.of_round(self.made, len(self._spent) - 1, new)
            self._sent = after.sent
            self._spent.append(Spent(after.seconds, sum(after.sent.values()), energy))
        return self._spent[rounds]

    def allowed(self, rounds: int) -> bool:
        """Say whether it may have so many rounds, by its keys and the deadline."""
        most = self.keys.get("rounds")
        most = most_rounds(self.made.config) if most is None else int(most)
        return rounds <= most and (math.isinf(self.deadline) or self.spent(rounds).seconds <= self.deadline)

    @property
    def reached(self) -> int | None:
        found = self.target.reached(self.rows)
        return None if found is None else found.round

    @property
    def best(self) -> float | None:
        """Return the best value of the metric so far."""
        values = [row[self.target.metric] for row in self.rows if row.get(self.target.metric) is not None]
        return (max if self.target.higher_is_better else min)(values, default=None)


def untrained_value(trial: Trial, cache: ProgramCache) -> float:
    """Test the untrained model, from which progress is counted."""
    made = trial.made
    row = Metrics([made], cache)(Alone(cache.engine(made)).stacked(made.start), 0, [math.nan])[0]
    value = row.get(trial.target.metric)
    if value is None:
        raise ConfigError(f"target_metric={trial.target.metric} is not defined for the untrained model, where a plan "
                          "begins to count; take another")  # fmt: skip
    return float(value)


class Trials:
    """This trains settings for a race, and keeps what came of them in a folder."""

    def __init__(
        self, folder: Path, price: Callable[[Spent], float], budget: int, whole: int, untrained: float, *,
        cache: ProgramCache, stop: StopRequest | None, tell: Tell, text: Callable[[float], str],
    ) -> None:  # fmt: skip
        self._folder, self._price, self._budget, self._stop, self._tell = folder, price, budget, stop, tell
        self.text, self._whole, self._lap, self._trained, self._alive = text, whole, "", 0, list[str]()
        self.made, self.later, self.slack, self._since = 0, 0.0, 1.0, 0
        self._likely: float | None = None
        self.trials: dict[str, Trial] = {}
        self.steps, self._cache, self._untrained = 0, cache, untrained
        self._known = _read(folder / TRIALS)

    def add(self, name: str, trial: Trial) -> None:
        self.trials[name] = trial

    # What a race asks

    def price(self, name: str, rounds: int) -> float:
        return self._price(self.trials[name].spent(rounds))

    def step(self, name: str) -> int:
        return self.trials[name].every

    def allowed(self, name: str, rounds: int) -> bool:
        return self.trials[name].allowed(rounds)

    def family(self, name: str) -> str:
        return str(self.trials[name].keys["algorithm"])

    def lap(self, cost: float, alive: Sequence[str], best: float) -> None:
        self._likely, self._since = self._estimate(cost, alive, best), self.steps
        leader = max(self.trials.values(), key=self.progress, default=None)
        said = "" if leader is None or leader.best is None else f"; best {leader.target.metric} {leader.best:.4g}"
        self._lap, self._trained, self._alive = f"{len(alive)} settings up to {self.text(cost)}{said}", 0, list(alive)
        self._tell(self._lap, 0, len(alive), self.steps, self.ahead())

    def ahead(self) -> Ahead:
        """Return what the plan still has to train."""
        new = sum(not self.trials[name].rounds for name in self._alive)
        likely = None if self._likely is None else round(max(0.0, self._likely - (self.steps - self._since)))
        most = self._whole - self.steps
        return Ahead(None if likely is None else min(likely, most), most, new, self.made)

    def _estimate(self, level: float, alive: Sequence[str], best: float) -> float | None:
        """Return the client steps of the race from here on, and of what comes later; None while nobody can say."""
        runners = []
        for name in alive:
            trial = self.trials[name]
            rounds = trial.rounds or trial.every
            price = self.price(name, rounds)
            steps = trial.made.job.steps_per_round * rounds / price
            runners.append(Runner(steps, price if trial.rounds else 0.0, self.progress(trial), self.family(name)))
        goal = goal_of(runners, best)
        if goal is None:
            return None
        leader = max(runners, key=lambda one: one.progress, default=Runner(0.0, 0.0, 0.0))
        there = {self.family(name) for name, trial in self.trials.items() if trial.reached is not None}
        return race_ahead(runners, level, goal, slack=self.slack, there=there) + self.later * leader.steps * goal

    def train(self, name: str, rounds: int) -> Standing:
        """Train a setting up to so many rounds, or remember that it was trained so far."""
        trial = self.trials[name]
        known, heard = self._known.pop((name, rounds), None), False
        if known is None:
            needed = (rounds - trial.rounds) * trial.made.job.steps_per_round
            if self.steps + needed > self._budget:
                raise BudgetSpentError
            known = self._train(name, trial, rounds)
            self.made += known["steps"]
            heard = True
        trial.rows += known["rows"]
        trial.rounds, trial.diverged = known["end"], known["diverged"]
        trial.steps += known["steps"]
        self.steps += known["steps"]
        self._trained += 1
        if heard:  # what is remembered takes no time
            self._tell(self._lap, self._trained, len(self._alive), self.steps, self.ahead())
        if trial.diverged or trial.reached is not None:
            self.forget_state(name)
        return Standing(trial.rounds, self.progress(trial), trial.reached, trial.diverged)

    def progress(self, trial: Trial) -> float:
        """Return which part of the way from the untrained model to the target was made."""
        best, target = trial.best, trial.target.value
        if best is None:
            return 0.0
        return 1.0 if trial.reached is not None else (best - self._untrained) / (target - self._untrained)

    # Training

    def _train(self, name: str, trial: Trial, rounds: int) -> dict[str, Any]:
        made, target = trial.made, trial.target
        state, done = self._state(name, trial)
        config = made.config.model_copy(update={"rounds": rounds})
        trial.training.rounds = rounds
        engine, rows, diverged, begun = self._cache.engine(made), list[Row](), False, trial.rounds
        tests = Metrics([made], self._cache)
        for stretch in stretches(
            Alone(engine), tests, [trial.training], state, done, config, pausing=self._stop is not None,
            target=target, history=trial.rows,
        ):  # fmt: skip
            if not np.isfinite(stretch.losses).all() or not is_finite(stretch.states):
                diverged, done = True, stretch.done
                break
            state, done = stretch.states, stretch.done
            rows += [_slim(row, target) for row in stretch.rows if stretch.done > begun]
            if self._stop is not None and self._stop.signal is not None and done < rounds:
                raise StoppedError("", self._stop.signal)
        if not diverged:
            checkpoint.save_arrays(self._place(name), checkpoint.by_name(here(state)), {"name": name, "round": done})
        steps = (done - begun) * made.job.steps_per_round
        found = {"name": name, "rounds": rounds, "end": done, "steps": steps, "diverged": diverged, "rows": rows}
        files.append(self._folder / TRIALS, files.line(found | {"digest": digest_of(canonical(found))}))
        return found

    def _place(self, name: str) -> Path:
        return self._folder / STATES / f"{digest_of(name)[:16]}.safetensors"

    def _state(self, name: str, trial: Trial) -> tuple[State, int]:
        """Return the state that a setting was left in; where it is not there any more it is trained again."""
        if not trial.rounds:
            return trial.made.start, 0
        start, place = trial.made.start, self._place(name)
        try:
            arrays, notes, _ = checkpoint.read_arrays(place)
            if notes == {"name": name, "round": trial.rounds}:
                return checkpoint.as_state(arrays, start, place), trial.rounds
        except RunError:
            pass
        log.info("the state of '%s' after round %d is not there: training it again", name, trial.rounds)
        return self._cache.engine(trial.made).rounds(start, 0, trial.rounds)[0], trial.rounds

    def forget_state(self, name: str) -> None:
        self._place(name).unlink(missing_ok=True)


def _slim(row: Row, target: Target) -> Row:
    """Keep of a test what a target is found by."""
    keep = ("round", "iteration", target.metric, "loss", "simulated_seconds", "bytes")
    return {key: row[key] for key in keep if key in row}


def _read(path: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """Read the laps that were finished: (setting, rounds asked for) → what came of it. A line cut short is none."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    if not path.exists():
        return found
    whole = []
    for line in files.read_text(path).splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        lap = files.parse_json(line, str(path))
        digest = lap.pop("digest", None) if isinstance(lap, dict) else None
        if not isinstance(lap, dict) or digest != digest_of(canonical(lap)):
            raise RunError(f"{path} is not as it was written: a line's checksum does not hold; restore it")
        found[lap["name"], lap["rounds"]] = lap
        whole.append(line)
    files.write_bytes(path, "".join(whole).encode())
    return found
