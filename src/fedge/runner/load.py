"""Read back a run that is there: what it came to so far, be it over or not."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from fedge.core.tree import Weights
from fedge.errors import RunError
from fedge.experiment.build import Experiment
from fedge.experiment.config import Config
from fedge.experiment.target import Reached
from fedge.runner import checkpoint, files, sources
from fedge.runner.prepare import Given, ready
from fedge.runner.record import DIVERGED, METRICS, RESULT, RUN, STOPPED, WEIGHTS, read_about
from fedge.runner.result import Result
from fedge.runner.rows import NUMBERS, read_rows, row_of


def load(folder: str | Path) -> Result:
    """Return the result of the run in a folder; `history` ends where the run is, or was left.

    Weights are read when they are asked for, and the experiment (data, clients, model) is made again.
    """
    folder = Path(folder)
    if not (folder / RUN).exists():
        below = sorted(path.parent.name for path in folder.glob(f"*/{RUN}"))
        hint = f"; it has runs in it, load one of them: {', '.join(below[:5])}{', …' if below[5:] else ''}"
        raise RunError(f"{folder} does not hold a run{hint if below else ''}")
    about = read_about(folder)
    stored = files.read_json(folder / RESULT) if (folder / RESULT).exists() else {}
    history = [row_of(line, folder / METRICS) for _, line in read_rows(folder / METRICS)]
    config = Config.of(about["config"])
    return Result(
        algorithm=config.algorithm,
        config=config,
        history=history,
        wall_seconds=_number(stored, "wall_seconds"),
        compile_seconds=_number(stored, "compile_seconds"),
        client_steps_per_second=_number(stored, "client_steps_per_second"),
        parameters=int(_number(stored, "parameters")),
        out=folder,
        read_weights=partial(_weights, folder),
        make=partial(_experiment, folder, config, about["objects"]),
        diverged=about.get("state") == DIVERGED,
        stopped=about.get("state") == STOPPED,
        reached=_reached(stored.get("reached"), folder),
    )


def _number(stored: dict[str, Any], key: str) -> float:
    value = stored.get(key)
    return float(value) if isinstance(value, NUMBERS) else 0.0


def _reached(stored: Any, folder: Path) -> Reached | None:
    try:
        return None if stored is None else Reached(**stored)
    except TypeError:
        raise RunError(f"{folder / RESULT} is damaged (what it says of its target); restore it") from None


def _weights(folder: Path) -> Weights:
    if not (folder / WEIGHTS).exists():
        raise RunError(f"the run in {folder} is not over and has no final weights; fedge run --resume {folder}")
    return {path: jnp.asarray(w) for path, w in checkpoint.read_arrays(folder / WEIGHTS)[0].items()}


def _experiment(folder: Path, config: Config, objects: dict[str, Any]) -> Experiment:
    sources.require(folder, objects)
    given = Given(None, None, None)
    given.check(config)
    with ready(config, config.devices):
        return given.experiment(config)
