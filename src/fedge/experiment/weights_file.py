"""Weights are kept in safetensors files by their names, and a run may start from them: init=FILE.safetensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from safetensors import SafetensorError
from safetensors.numpy import load, save_file

from fedge.data.own_numbers import read_file
from fedge.errors import ConfigError, DataError, RunError, brief
from fedge.experiment.checks import CUSTOM
from fedge.models import Model
from fedge.models.weights import Arrays, require_fit

if TYPE_CHECKING:
    from fedge.experiment.config import Config

SUFFIX = ".safetensors"


def is_weights_file(given: object) -> bool:
    """Say whether this has the name of a file that weights are read from."""
    return isinstance(given, str) and Path(given).suffix.lower() == SUFFIX


def load_weights(path: str | Path) -> Arrays:
    """Read the weights of a safetensors file, by their names: a run's weights.safetensors, or anybody's."""
    return _read(brief(path), Path(path))


def save_weights(path: str | Path, weights: Mapping[str, ArrayLike]) -> None:
    """Write weights by their names into a safetensors file."""
    arrays = {str(name): np.ascontiguousarray(w) for name, w in weights.items()}
    try:
        save_file({name: w.reshape(np.shape(weights[name])) for name, w in arrays.items()}, path)
    except (OSError, SafetensorError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise RunError(f"cannot write {path}: {brief(reason)}; choose another place") from None


def initial_weights(config: Config, model: Model, given: Mapping[str, ArrayLike] | None) -> Arrays | None:
    """Return the weights that a run starts from; None where they are drawn."""
    if config.init is None:
        return None
    what = f"init={brief(config.init)}"
    if config.init == CUSTOM:
        if given is None:
            raise ConfigError("init=custom means weights passed in from Python; pass them (again)")
        return require_fit(what, given, model, config.dtype)
    return require_fit(what, _read(what, Path(config.init)), model, config.dtype)


def _read(what: str, path: Path) -> Arrays:
    content = read_file(what, path)
    try:
        found: dict[str, Any] = load(content)
    except (SafetensorError, ValueError, TypeError, KeyError) as problem:
        reason = (str(problem).splitlines() or ["it is damaged"])[0]
        raise DataError(f"{what} cannot be read ({brief(reason)}); give a safetensors file") from None
    return found
