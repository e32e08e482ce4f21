"""Run the same experiment under several algorithms: same data, clients, initial model and sample order."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedge import plugins
from fedge.algorithms import ALGORITHMS, algorithm, installed
from fedge.core.objective import Objective
from fedge.data import Dataset
from fedge.errors import ConfigError, DivergenceError, RunError, StoppedError
from fedge.experiment.build import Optimiser
from fedge.experiment.checks import CUSTOM
from fedge.experiment.config import Config, foreign
from fedge.models import Model
from fedge.runner import files, record
from fedge.runner.identity import canonical, digest_of
from fedge.runner.prepare import Given, Keys, ready
from fedge.runner.result import Listener, Result
from fedge.runner.run import default_folder, run
from fedge.runner.signals import StopRequest

log = logging.getLogger(__name__)
PLAN = "compare.json"
Plan = dict[str, dict[str, Any]]  # algorithm → the keys of its run


def compare(
    algorithms: Sequence[str] = (), config: Keys | None = None, *, out: str | Path | None = None,
    resume: str | Path | None = None, dataset: Dataset | None = None, model: Model | str | None = None,
    optimiser: Optimiser | None = None, objective: Objective | None = None, listener: Listener | None = None,
    stop: StopRequest | None = None, **keys: Any,
) -> dict[str, Result]:  # fmt: skip
    """Run each algorithm (unless named, each paper's own) with the same keys; return results by name.

    Keys are those of the command line, as words or in a table (`config`); one that only some algorithms read goes to
    those. The runs lie in one folder, one sub-folder each. `resume` finishes a comparison that was stopped: runs that
    are over are read back, one that was cut short goes on. A run that diverges ends alone: its result says so.
    """
    given, keys = Given(dataset, None, optimiser, objective).take_arrays(dict(config or {}) | keys)
    if resume is not None:
        if algorithms or out is not None or keys:
            raise ConfigError("a resumed comparison keeps its own configuration and folder; give resume alone")
        folder, model = Path(resume), None if isinstance(model, str) else model
        plan = read_plan(folder)
    else:
        if isinstance(model, str):
            keys, model = keys | {"model": model}, None
        plan = make_plan(algorithms, keys | dict.fromkeys(given.arrays, CUSTOM))
        _refuse(plan, replace(given, model=model))
        folder = Path(out) if out is not None else default_folder("compare")
        record.claim(folder, PLAN)
    results: dict[str, Result] = {}
    with files.locked(folder):
        if resume is None:
            record.claim(folder, PLAN)
            write_plan(folder, plan)
        for name, chosen in plan.items():
            place = folder / name
            if place.is_symlink():
                raise RunError(f"{place} is a link to another place; a comparison writes into its own folder only")
            where = given.arrays | ({"resume": place} if record.holds_run(place) else {"config": chosen, "out": place})
            try:
                results[name] = run(
                    **where, dataset=dataset, model=model, optimiser=optimiser, objective=objective, listener=listener,
                    stop=stop,
                )  # fmt: skip
            except DivergenceError as problem:
                log.warning("%s", problem)
                results[name] = problem.result
            except StoppedError as problem:
                saved = "; continue with: " in str(problem)
                how = f"; continue with: fedge compare --resume {folder}" if saved else ""
                raise StoppedError(str(problem).split("; continue with: ")[0] + how, problem.exit_code - 128) from None
    return results


def make_plan(algorithms: Sequence[str], keys: dict[str, Any]) -> Plan:
    """Return the keys of each run; every one is checked before the first starts."""
    names = list(dict.fromkeys(algorithms)) or [name for name, entry in ALGORITHMS.items() if entry.form_of is None]
    if "algorithm" in keys:
        raise ConfigError("algorithm is not a key of a comparison; name the algorithms to compare instead")
    for name in names:
        algorithm(name)
    plan = {name: {"algorithm": name} | {k: v for k, v in keys.items() if k not in foreign(name)} for name in names}
    for chosen in plan.values():
        Config.of(chosen)
    return plan


def write_plan(folder: Path, plan: Plan) -> None:
    files.write_json(folder / PLAN, {"runs": plan, "sha256": digest_of(canonical(plan))})


def read_plan(folder: Path) -> Plan:
    """Read what was to be compared, as it was written; a name that is no algorithm's could lead out of the folder."""
    stored = files.read_json(folder / PLAN)
    plan = stored.get("runs")
    if not isinstance(plan, dict) or not plan:
        raise RunError(f"{folder / PLAN} is damaged (it names no runs); restore it")
    for name, chosen in plan.items():
        if not _is_algorithm(name) or not isinstance(chosen, dict) or chosen.get("algorithm") != name:
            raise RunError(f"{folder / PLAN} is damaged ('{name}' with its keys is no run of an algorithm); restore it")
    if stored.get("sha256") != digest_of(canonical(plan)):
        raise RunError(
            f"{folder / PLAN} was changed since the comparison was begun: its checksum does not hold; undo that"
        )
    return plan


def _is_algorithm(name: str) -> bool:
    return name in ALGORITHMS or plugins.is_name(name) or name in installed()


def _refuse(plan: Plan, given: Given) -> None:
    """Refuse what an algorithm refuses before another has trained for an hour."""
    for name, chosen in plan.items():
        config = given.resolve(chosen)
        with ready(config, config.devices):
            try:
                given.experiment(config)
            except ConfigError as problem:
                raise ConfigError(f"{name}: {problem}; or name the algorithms to compare") from None
