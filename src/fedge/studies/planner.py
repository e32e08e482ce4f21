"""Plan: which algorithm, and with which keys, reaches a target at the least cost on a network.

    choices      what is possible (`choices.py`); what exposes what it must not, or does not fit, is left out
    race         settings train lap by lap, the worse half goes (`race.py`, `trials.py`)
    neighbours   of the winner, one key changed, race against it, until none is better
    finals       the best train again on seeds the race has not seen, each equally long; the pick is the best of their
                 means, so its own is flattered by that choice among a few, and no longer by the race's
    answer       front, recommendation, what would change it (`answer.py`)

The same question and seed give the same answer, killed and resumed or not.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from fedge.core.objective import Objective
from fedge.data import Dataset
from fedge.data.own_data import is_own
from fedge.errors import ConfigError, DivergenceError, RunError, StoppedError
from fedge.experiment.build import Experiment
from fedge.experiment.checks import CUSTOM
from fedge.experiment.holding import holdings
from fedge.experiment.optimisers import Optimiser
from fedge.experiment.own import load_data
from fedge.experiment.target import Target
from fedge.models import Model
from fedge.runner import files, record
from fedge.runner.cache import ProgramCache
from fedge.runner.environment import now
from fedge.runner.identity import canonical, code_digest, digest_of, identity, is_known, objects
from fedge.runner.prepare import Given, Keys, ready
from fedge.runner.run import default_folder
from fedge.runner.signals import StopRequest
from fedge.studies.ahead import Ahead
from fedge.studies.answer import LONGER, Answer, Final
from fedge.studies.choices import distinct, make_choices, name_of
from fedge.studies.exposure import excluded, exposure
from fedge.studies.question import Question, split
from fedge.studies.race import Result, race
from fedge.studies.stored_plan import PLANNED, RUNS, make_run, resume_command
from fedge.studies.sweep import outcome_of
from fedge.studies.trials import STATES, Tell, Trial, Trials, untrained_value

log = logging.getLogger(__name__)
ENGINES_KEPT = 16
REFINED = 3  # times that neighbours of the best are raced
SLACK = 2.0  # times the winner's cost that the best of each other algorithm may take
MADE_WITH = {  # what a plan is resumed with too, and in words what it was begun with where that is not so
    "inputs": "other data, another model, task or network",
    "code": "other source files of fedge",
    "jax": "another version of JAX",
}


def plan(
    config: Keys | None = None, *, out: str | Path | None = None, resume: str | Path | None = None,
    dataset: Dataset | None = None, model: Model | None = None, optimiser: Optimiser | None = None,
    objective: Objective | None = None, stop: StopRequest | None = None, tell: Tell | None = None, **keys: Any,
) -> Answer:  # fmt: skip
    """Find what reaches `target` at the least cost: `plan(target=0.8, minimise="bytes", lr=[0.05, 0.1])`.

    Keys are those of a run, and those of `Question`. One with one value is fixed, with several it is a choice. `resume`
    finishes a plan that was stopped.
    """
    given, wanted = Given(dataset, model, optimiser, objective), dict(config or {}) | keys
    if resume is not None:
        if wanted or out is not None:
            raise ConfigError("a resumed plan keeps its own question and folder; give resume alone")
        folder = Path(resume)
        wanted = _read(folder)
    elif dataset is not None and is_known(dataset):
        wanted["data"] = dataset.name
    question, asked = split(wanted)
    planner = Planner(question, asked, given, stop, tell or (lambda *heard: None))
    if resume is None:
        folder = Path(out) if out is not None else default_folder("plan")
        record.claim(folder, PLANNED)
    with files.locked(folder):
        if resume is None:
            record.claim(folder, PLANNED)
            files.write_json(folder / PLANNED, {
                "question": wanted, "sha256": digest_of(canonical(wanted)), "made_with": planner.made_with,
                "higher_is_better": planner.candidates[0][1].target.higher_is_better,
                "passed_in": list(planner.passed_in), "begun": now(),
            })  # fmt: skip
        else:
            _require_same(folder, planner.made_with)
        files.make_folder(folder / STATES)
        return planner.answer(folder)


def _read(folder: Path) -> dict[str, Any]:
    """Read the question of a plan that was begun."""
    stored = files.read_json(folder / PLANNED)
    question = stored.get("question")
    if not isinstance(question, dict) or stored.get("sha256") != digest_of(canonical(question)):
        raise RunError(
            f"{folder / PLANNED} was changed since the plan was begun: its checksum does not hold; undo that"
        )
    return question


def _require_same(folder: Path, now: dict[str, str]) -> None:
    """Refuse to go on with a plan whose laps were trained with something else."""
    then = files.read_json(folder / PLANNED).get("made_with")
    changed = [said for key, said in MADE_WITH.items() if not isinstance(then, dict) or then.get(key) != now[key]]
    if changed:
        raise RunError(f"{folder} was begun with {' and '.join(changed)}; go on with that, or begin a new plan")


class Planner:
    """This answers one question."""

    def __init__(
        self, question: Question, asked: dict[str, Any], given: Given, stop: StopRequest | None, tell: Tell
    ) -> None:  # fmt: skip
        self._question, self._given, self._stop, self._say = question, given, stop, tell
        self._datasets: dict[int, Dataset] = {}
        self._cache = ProgramCache(ENGINES_KEPT)
        self.refused: dict[str, str] = {}
        base = self._base(asked)
        linked = getattr(base.config, "network", None) is not None
        self.choices = make_choices(asked, base.model.stages, base.topology.cells, linked=linked)
        self._seed = base.config.seed
        self.passed_in = tuple(
            key for key in ("data", "model", "optimizer", "task") if getattr(base.config, key) == CUSTOM
        )
        self.candidates = self._find()
        first = self.candidates[0][1]
        with ready(first.made.config, first.made.config.devices):
            self._untrained = untrained_value(first, self._cache)
            made_of = objects(first.made, given.optimiser)
            self.made_with = {
                "inputs": identity(first.made.config.model_dump(), made_of, ""),
                "code": code_digest(),
                "jax": jax.__version__,
            }
        _refuse_untrained(first.target, self._untrained)

    def _base(self, asked: Mapping[str, Any]) -> Experiment:
        """Build the first setting that can be, from which data, model and cells are known."""
        first, problems = make_choices(asked, ("model",), 1, linked=True), list[ConfigError]()
        for name, axes in first.axes.items():
            own = {key: values[0] for key, values in axes.items()}
            try:
                return self._build(first.complete({"algorithm": name} | own))
            except ConfigError as problem:  # of this algorithm only, maybe: a network without a cloud, say
                problems.append(problem)
        raise problems[0]

    def _build(self, keys: Mapping[str, Any]) -> Experiment:
        config = self._given.resolve(keys)
        with ready(config, config.devices):
            if self._given.dataset is None:
                place = config.seed if is_own(config.data) else 0
                if place not in self._datasets:
                    self._datasets[place] = load_data(config)
                return replace(self._given, dataset=self._datasets[place]).experiment(config)
            return self._given.experiment(config)

    # Which settings

    def _find(self) -> list[tuple[str, Trial]]:
        """Build as many settings as are to race; those that cannot be, or must not, are passed over."""
        found: list[tuple[str, Trial]] = []
        for keys in distinct(self.choices.draw(self._seed)):
            if len(found) == self._question.settings:
                break
            trial = self._trial(keys)
            if trial is not None:
                found.append((self._name(keys), trial))
        if not found:
            reasons = list(dict.fromkeys(self.refused.values()))
            raise ConfigError(f"no setting is possible: {reasons[0] if reasons else 'there are none'}")
        return found

    def _name(self, keys: Mapping[str, Any]) -> str:
        return name_of(keys, self.choices.axes[keys["algorithm"]])

    def _trial(self, keys: dict[str, Any]) -> Trial | None:
        """Make a setting ready to train; None where it cannot be, and why is written down."""
        name, q = self._name(keys), self._question
        try:
            made = self._build(keys)
        except ConfigError as problem:
            self.refused[name] = str(problem)
            return None
        if seen := exposure(made.job.algorithm, made.model.stages).keys() & excluded(q.exclude):
            self.refused[name] = f"it shows {', '.join(sorted(seen))}, which exclude={q.exclude} rules out"
            return None
        trial = Trial(keys, made, q.energy, client_memory(made), q.deadline or math.inf)
        if q.client_memory is not None and trial.client_memory > q.client_memory:
            need, most = trial.client_memory / 1e6, q.client_memory / 1e6
            self.refused[name] = f"a client needs {need:.3g} MB, more than {most:.3g} MB"
        elif not q.price(trial.spent(trial.every)):  # a race in which all costs are 0 would never end
            more = "; add joules_per_mb" if q.minimise == "energy" else ""
            self.refused[name] = f"it costs nothing of what is to be small ({q.minimise}){more}"
        elif not trial.allowed(trial.every):
            self.refused[name] = f"its first test would come after the deadline of {q.deadline:g} s"
        else:
            return trial
        return None

    # The search

    def answer(self, folder: Path) -> Answer:
        """Race, refine, and let the best run again; write the answer down."""
        q, stop = self._question, self._stop
        trials = Trials(
            folder, q.price, q.budget - q.budget // 3, q.budget, self._untrained, cache=self._cache, stop=stop,
            tell=self._say, text=q.text,
        )  # fmt: skip
        for name, trial in self.candidates:
            trials.add(name, trial)
        first = self.candidates[0][1]
        with saying_how_to_go_on(folder), stop.heard() if stop is not None else contextlib.nullcontext():
            with ready(first.made.config, first.made.config.devices):
                runs, axes = q.finalists * q.seeds, self.choices.axes.values()
                neighbours = sum(len(values) > 1 for own in axes for values in own.values()) / len(axes)
                trials.later, trials.slack = runs + neighbours, SLACK  # two of each key, of which half go
                result = race(list(trials.trials), trials, slack=SLACK)
                trials.later, trials.slack = runs, 1.0
                self._refine(trials, result)
            for name in trials.trials:
                trials.forget_state(name)
            finals = self._finals(folder, trials, result)
        found = Answer(
            folder, q, self.choices, trials.trials, result.fate, self.refused, finals, self._untrained, trials.steps,
            result.spent, self.passed_in,
        )  # fmt: skip
        found.write()
        return found

    def _refine(self, trials: Trials, result: Result) -> None:
        """Race what lies next to the winner against it, until nothing there is better."""
        for _ in range(REFINED):
            there = {n: s.reached for n, s in result.standing.items() if s.reached is not None}
            if not there or result.spent:
                return
            best = min(there, key=lambda name: trials.price(name, there[name]))
            near = [keys for keys in self.choices.neighbours(trials.trials[best].keys)
                    if self._name(keys) not in {**trials.trials, **self.refused}]  # fmt: skip
            new = [(self._name(keys), trial) for keys in near if (trial := self._trial(keys)) is not None]
            if not new:
                return
            for name, trial in new:
                trials.add(name, trial)
            beyond = race([name for name, _ in new], trials, best=result.best)
            result.standing |= beyond.standing
            result.fate |= beyond.fate
            result.spent |= beyond.spent
            if not beyond.best < result.best:
                return
            result.best = beyond.best

    # The finals

    def _finals(self, folder: Path, trials: Trials, result: Result) -> list[Final]:
        """Run the best settings on fresh seeds, as ordinary runs, seed by seed while the budget lasts for all of them.

        Of finalists for which not even one seed fits the dearest go.
        """
        q = self._question
        there = {n: s.reached for n, s in result.standing.items() if s.reached is not None}
        order = sorted(there, key=lambda name: trials.price(name, there[name]))[: q.finalists]
        most = {name: LONGER * there[name] * trials.trials[name].made.job.steps_per_round for name in order}
        while order and sum(most[name] for name in order) > q.budget - trials.steps:
            order.pop()
        found: list[Final] = []
        runs = [name for _ in range(q.seeds) for name in order]
        for seed in range(self._seed + 1, self._seed + 1 + q.seeds):
            if sum(most[name] for name in order) > q.budget - trials.steps:
                break
            for name in order:
                trial = trials.trials[name]
                left = runs[len(found) :]
                likely = sum(most[other] for other in left) // LONGER
                ahead = Ahead(likely, sum(most[other] for other in left), 0, trials.made)
                self._say("finals on fresh seeds", len(found), len(runs), trials.steps, ahead)
                there_already = record.holds_run(_place(folder, name, seed))
                final = self._final(folder, name, trial, seed, LONGER * there[name])
                trials.steps += final.rounds * trial.made.job.steps_per_round
                trials.made += 0 if there_already else final.rounds * trial.made.job.steps_per_round
                found.append(final)
        return found

    def _final(self, folder: Path, name: str, trial: Trial, seed: int, most: int) -> Final:
        keys = {key: value for key, value in trial.keys.items() if key != "checkpoint_every"}
        keys |= {"seed": seed, "rounds": most}
        place = _place(folder, name, seed)
        files.make_folder(place.parent)
        given = {"dataset": self._given.dataset, "model": self._given.model, "optimiser": self._given.optimiser,
                 "objective": self._given.objective}  # fmt: skip
        if (found := outcome_of(place, keys)) is None:
            with contextlib.suppress(DivergenceError):
                make_run(place, keys, stop=self._stop, cache=self._cache, **given)
            found = outcome_of(place, keys)
        if found is None:
            raise RunError(f"{place} was run but its record is not over; resume the plan")
        reached = None if found.reached is None else int(found.reached["round"])
        own = Trial(keys, self._build(keys), self._question.energy, trial.client_memory)
        return Final(name, seed, place.name, int(found.final["round"]), reached, own)


def _place(folder: Path, name: str, seed: int) -> Path:
    """Return where a setting's final on a seed lies."""
    return folder / RUNS / f"{digest_of(name)[:8]}_seed={seed}"


def _refuse_untrained(target: Target, value: float) -> None:
    if value >= target.value if target.higher_is_better else value <= target.value:
        raise ConfigError(f"target={target.value:g} is reached by the untrained model already ({target.metric} "
                          f"{value:.4g}); give a target worth training for")  # fmt: skip


def client_memory(made: Experiment) -> int:
    """Return the bytes that a client needs at its worst moment, in the cell where that is most."""
    job = made.job
    found = holdings(job.algorithm, job.task, made.model, made.clock.ledger, made.dataset, made.partition)
    return max(own.client.total for own in found)


@contextlib.contextmanager
def saying_how_to_go_on(folder: Path) -> Iterator[None]:
    """Let what is said when a plan is stopped end with the command that goes on with it."""
    try:
        yield
    except StoppedError as problem:
        said = f"stopped; continue with: {resume_command(folder)}"
        raise StoppedError(said, problem.exit_code - 128, folder) from None
