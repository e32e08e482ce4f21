"""The same experiment under several algorithms: same data, clients, initial model and sample order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedge.algorithms import ALGORITHMS
from fedge.data import Dataset
from fedge.errors import ConfigError, unknown
from fedge.models import Model
from fedge.runner import record
from fedge.runner.config import Config
from fedge.runner.loop import Listener, Result, default_folder, run
from fedge.runner.setup import Optimiser


def compare(
    algorithms: Sequence[str] = (), *, out: str | Path | None = None, dataset: Dataset | None = None,
    model: Model | str | None = None, optimiser: Optimiser | None = None, listener: Listener | None = None, **keys: Any,
) -> dict[str, Result]:  # fmt: skip
    """Run each algorithm (all that the project has, unless named) with the same keys; results by name.

    A key that only some algorithms read goes to those. The runs lie in one folder, one sub-folder each.
    """
    names = list(dict.fromkeys(algorithms)) or list(ALGORITHMS)
    for name in names:
        if name not in ALGORITHMS:
            raise ConfigError(unknown("algorithm", name, ALGORITHMS))
    if "algorithm" in keys:
        raise ConfigError("algorithm is not a key of a comparison; name the algorithms to compare instead")
    if isinstance(model, str):
        keys, model = keys | {"model": model}, None
    specific = set().union(*(entry.keys for entry in ALGORITHMS.values()))
    own = {name: {k: v for k, v in keys.items() if k not in specific - ALGORITHMS[name].keys} for name in names}
    for name in names:
        Config.of({"algorithm": name} | own[name])  # every one of them, before the first starts
    folder = Path(out) if out is not None else default_folder("compare")
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty; choose another --out")
    record.create(folder)
    return {
        name: run(
            {"algorithm": name} | own[name], out=folder / name, dataset=dataset, model=model, optimiser=optimiser,
            listener=listener,
        )
        for name in names
    }  # fmt: skip
