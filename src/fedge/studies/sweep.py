"""Run a grid: every combination of the values given for some keys, over seeds, one run folder each.

Runs go one after another in this process and share compiled programs: a setting that changes no shape (another rate,
seed, partition or budget) is not compiled again. What comes of a sweep is read from the records of its runs, so one
that was killed and resumed has the table of one that was not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedge.core.objective import Objective
from fedge.data import Dataset
from fedge.errors import ConfigError, DivergenceError, RunError
from fedge.experiment.checks import CUSTOM
from fedge.experiment.config import Config
from fedge.experiment.optimisers import Optimiser
from fedge.models import Model
from fedge.runner import files, record
from fedge.runner.cache import ProgramCache
from fedge.runner.identity import LENGTH, canonical
from fedge.runner.listener import Audience, Listener
from fedge.runner.prepare import Given, Keys, part_model, ready
from fedge.runner.record import DIVERGED, FINISHED
from fedge.runner.run import default_folder
from fedge.runner.signals import StopRequest
from fedge.studies.grid import by_shape, make_plan
from fedge.studies.stored_plan import SWEEP, Plan, make_run, read_plan, saying_how_to_go_on, write_plan
from fedge.studies.sweep_table import Line, Outcome, lines_of

ENGINES_KEPT = 4  # compiled shapes, with their data; runs of one shape follow one another


@dataclass(frozen=True)
class Sweep:
    """This is what came of a sweep: each run's outcome, and a line of the table for each setting."""

    out: Path
    plan: Plan
    outcomes: dict[str, Outcome]

    @property
    def table(self) -> list[Line]:
        return lines_of(self.plan, self.outcomes)


def sweep(
    algorithms: Sequence[str] | str = (), config: Keys | None = None, *, seeds: int | Sequence[int] | None = None,
    out: str | Path | None = None, resume: str | Path | None = None, dataset: Dataset | None = None,
    model: Model | str | Sequence[str] | None = None, optimiser: Optimiser | None = None,
    objective: Objective | None = None, listener: Listener | Sequence[Listener] | None = None,
    stop: StopRequest | None = None, many: bool = False, **keys: Any,
) -> Sweep:  # fmt: skip
    """Run each algorithm with every combination of values given, as in `sweep("hierfavg", lr=[0.02, 0.1], seeds=3)`.

    Several values of a key are a list, or words with commas between. `seeds` is how many, from `seed` on, or which.
    Keys that only some algorithms read go to those. `resume` finishes a sweep that was stopped. More than 1,000 runs
    need `many=True`. A run that diverges is an outcome like others.
    """
    passed, wanted = part_model(model, dict(config or {}) | keys)
    given = Given(dataset, passed, optimiser, objective)
    if resume is not None:
        if algorithms or out is not None or wanted or seeds is not None:
            raise ConfigError("a resumed sweep keeps its own configuration and folder; give resume alone")
        folder = Path(resume)
        plan = read_plan(folder / SWEEP)
    else:
        names = [algorithms] if isinstance(algorithms, str) else algorithms
        plan = make_plan(names, wanted, seeds, many=many)
        _refuse(plan, given)
        folder = Path(out) if out is not None else default_folder("sweep")
        record.claim(folder, SWEEP)
    with files.locked(folder):
        if resume is None:
            record.claim(folder, SWEEP)
            write_plan(folder / SWEEP, plan)
        outcomes = _make_runs(folder, plan, given, Audience(listener), stop)
    return Sweep(folder, plan, outcomes)


def _make_runs(
    folder: Path, plan: Plan, given: Given, audience: Audience, stop: StopRequest | None
) -> dict[str, Outcome]:
    """Make the runs that are not over yet, and return how each of all ended, in the plan's order."""
    over = {name: found for name in plan if (found := outcome_of(folder / name, plan[name])) is not None}
    cache = ProgramCache(ENGINES_KEPT)
    audience.tell("study", len(plan), len(over))
    for name in by_shape(plan):
        if name in over:
            continue
        with saying_how_to_go_on(folder), contextlib.suppress(DivergenceError):  # its record says so
            make_run(
                folder / name, plan[name], dataset=given.dataset, model=given.model, optimiser=given.optimiser,
                objective=given.objective, listener=list(audience), stop=stop, cache=cache,
            )  # fmt: skip
        found = outcome_of(folder / name, plan[name])
        if found is None:
            raise RunError(f"{folder / name} was stopped before its end, so that the table would not compare like with "
                           f"like; go on with: fedge sweep --resume {folder}")  # fmt: skip
        over[name] = found
    return {name: over[name] for name in plan}


def outcome_of(place: Path, chosen: Mapping[str, Any]) -> Outcome | None:
    """Read how a run of a sweep ended from its record; None where it is not over. Another run's record is refused."""
    if not record.holds_run(place) or place.is_symlink():
        return None
    about = record.read_about(place)
    if about.get("state") not in (FINISHED, DIVERGED):
        return None
    kept = record.reopen(place)
    _same(place, kept.config, chosen)
    stored = kept.stored_result()
    history = stored.get("history") if stored is not None else None
    if stored is None or not isinstance(history, list) or not history:
        return None  # making the run again finishes its record
    return Outcome(history[-1], diverged=about["state"] == DIVERGED, reached=stored.get("reached"))


def _same(place: Path, found: Mapping[str, Any], chosen: Mapping[str, Any]) -> None:
    """Refuse the record of a run that is not the one planned: somebody may have moved folders about."""
    wanted = Config.of(chosen).model_dump()
    differ = [key for key in wanted if key not in LENGTH and found.get(key) != CUSTOM
              and canonical(found.get(key)) != canonical(wanted[key]) and key in chosen]  # fmt: skip
    if differ:
        raise RunError(f"{place} holds another run than the plan says ({differ[0]}={found.get(differ[0])}); move it "
                       "away, and the sweep makes its own")  # fmt: skip


def _refuse(plan: Plan, given: Given) -> None:
    """Refuse what an algorithm refuses before another has trained for an hour; rates and seeds it does not look at."""
    looked = set()
    for name, chosen in plan.items():
        config = given.resolve(chosen)
        what = config.model_dump_json(exclude={"lr", "seed"})
        if what not in looked:
            looked.add(what)
            with ready(config, config.devices):
                try:
                    given.experiment(config)
                except ConfigError as problem:
                    raise ConfigError(f"{name}: {problem}") from None
