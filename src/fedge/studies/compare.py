"""The same experiment under several algorithms: same data, clients, initial model and sample order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedge.algorithms import ALGORITHMS
from fedge.data import Dataset
from fedge.errors import ConfigError, unknown
from fedge.experiment.build import Optimiser, experiment
from fedge.experiment.checks import foreign
from fedge.experiment.config import Config
from fedge.models import Model
from fedge.runner import record
from fedge.runner.loop import Keys, Listener, Result, default_folder, ready, resolved, run


def compare(
    algorithms: Sequence[str] = (), config: Keys | None = None, *, out: str | Path | None = None,
    resume: str | Path | None = None, dataset: Dataset | None = None, model: Model | str | None = None,
    optimiser: Optimiser | None = None, listener: Listener | None = None, **keys: Any,
) -> dict[str, Result]:  # fmt: skip
    """Run each algorithm (unless named, each paper's own) with the same keys; results by name.

    Keys are those of the command line, as words or in a table (`config`); one that only some algorithms read goes to
    those. The runs lie in one folder, one sub-folder each. `resume` finishes a comparison that was stopped: runs that
    are over are read back, one that was cut short goes on.
    """
    keys = dict(config or {}) | keys
    objects: dict[str, Any] = {"dataset": dataset, "optimiser": optimiser, "listener": listener}
    if resume is not None:
        if algorithms or out is not None or keys:
            raise ConfigError("a resumed comparison keeps its own configuration and folder; give resume alone")
        folder, model = Path(resume), None if isinstance(model, str) else model
        own = record.read_json(folder / PLAN)
    else:
        if isinstance(model, str):
            keys, model = keys | {"model": model}, None
        own = _plan(algorithms, keys)
        for name, chosen in own.items():  # what an algorithm refuses, it refuses before another has trained for an hour
            whole = resolved(chosen, dataset, model, optimiser)
            with ready(whole):
                try:
                    experiment(whole, dataset, model, optimiser)
                except ConfigError as problem:
                    raise ConfigError(f"{name}: {problem}; or name the algorithms to compare") from None
        folder = record.create(Path(out) if out is not None else default_folder("compare"))
        record.write_json(folder / PLAN, own)
    results = {}
    for name, chosen in own.items():
        place = folder / name
        begun = (place / "config.json").exists()
        where: dict[str, Any] = {"resume": place} if begun else {"config": chosen, "out": place}
        results[name] = run(model=model, **where, **objects)
    return results


PLAN = "compare.json"


def _plan(algorithms: Sequence[str], keys: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The keys of each run; every one is checked before the first starts."""
    names = list(dict.fromkeys(algorithms)) or [name for name, entry in ALGORITHMS.items() if entry.form_of is None]
    for name in names:
        if name not in ALGORITHMS:
            raise ConfigError(unknown("algorithm", name, ALGORITHMS))
    if "algorithm" in keys:
        raise ConfigError("algorithm is not a key of a comparison; name the algorithms to compare instead")
    own = {}
    for name in names:
        mine = {k: v for k, v in keys.items() if k not in foreign(name)}
        own[name] = {"algorithm": name} | mine
        Config.of(own[name])
    return own
