"""Run the same experiment under several algorithms: same data, clients, initial model and sample order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedge import plugins
from fedge.algorithms import ALGORITHMS, algorithm, installed
from fedge.core.objective import Objective
from fedge.data import Dataset
from fedge.errors import ConfigError, DivergenceError, RunError
from fedge.experiment.checks import CUSTOM
from fedge.experiment.config import Config, foreign
from fedge.experiment.optimisers import Optimiser
from fedge.models import Model
from fedge.runner import files, record
from fedge.runner.listener import Listener
from fedge.runner.prepare import Given, Keys, part_model, ready
from fedge.runner.result import Result
from fedge.runner.run import default_folder
from fedge.runner.signals import StopRequest
from fedge.studies import stored_plan as plans
from fedge.studies.stored_plan import COMPARISON, Plan, make_run, saying_how_to_go_on

log = logging.getLogger(__name__)


def compare(
    algorithms: Sequence[str] = (), config: Keys | None = None, *, out: str | Path | None = None,
    resume: str | Path | None = None, dataset: Dataset | None = None,
    model: Model | str | Callable[..., Any] | None = None, optimiser: Optimiser | None = None,
    objective: Objective | None = None,
    listener: Listener | Sequence[Listener] | None = None, stop: StopRequest | None = None, **keys: Any,
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
        folder, model = Path(resume), model if isinstance(model, Model) else None
        plan = read_plan(folder)
    else:
        model, keys = part_model(model, keys)
        plan = make_plan(algorithms, keys | dict.fromkeys(given.arrays, CUSTOM))
        _refuse(plan, replace(given, model=model))
        folder = Path(out) if out is not None else default_folder("compare")
        record.claim(folder, COMPARISON)
    results: dict[str, Result] = {}
    with files.locked(folder):
        if resume is None:
            record.claim(folder, COMPARISON)
            write_plan(folder, plan)
        for name, chosen in plan.items():
            try:
                with saying_how_to_go_on(folder):
                    results[name] = make_run(
                        folder / name, chosen, dataset=dataset, model=model, optimiser=optimiser, objective=objective,
                        listener=listener, stop=stop, **given.arrays,
                    )  # fmt: skip
            except DivergenceError as problem:
                log.warning("%s", problem)
                results[name] = problem.result
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
    plans.write_plan(folder / COMPARISON, plan)


def read_plan(folder: Path) -> Plan:
    """Read what was to be compared, as it was written; each run has the name of its algorithm."""
    plan = plans.read_plan(folder / COMPARISON)
    for name, chosen in plan.items():
        if not _is_algorithm(name) or chosen.get("algorithm") != name:
            raise RunError(
                f"{folder / COMPARISON} is damaged ('{name}' with its keys is no run of an algorithm); restore it"
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
