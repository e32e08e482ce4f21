"""Files and functions of one's own that a run is begun with are written down, and found again when it is resumed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedge.data.own_data import is_data_file
from fedge.data.own_numbers import is_number_file, is_ordinary
from fedge.errors import ConfigError, RunError, brief
from fedge.experiment.network_file import files_of
from fedge.experiment.weights_file import is_weights_file
from fedge.models.own import WITH_RNGS, WITHOUT
from fedge.plugins import find, is_name, source_digest

OBJECTS = {
    "data": "data set", "model": "model", "optimizer": "optimiser", "partition": "partition", "assign": "list of cells",
    "task": "objective", "init": "set of initial weights",
}  # fmt: skip
TRACED = ("model", "optimizer", "task")  # their digests are those of programs
UPDATES = ("codec", "down_codec", "cloud_codec", "edge_rule", "cloud_rule")
FUNCTIONS: dict[str, tuple[tuple[str, ...], ...]] = {  # what these functions may take
    "data": ((),), "task": (("dataset",),), "model": (WITH_RNGS, WITHOUT), **dict.fromkeys(UPDATES, ((),)),
}  # fmt: skip
FILES: dict[str, Callable[[Any], bool]] = {
    "data": is_data_file,
    "partition": is_number_file,
    "assign": is_number_file,
    "init": is_weights_file,
    "network": lambda given: given is not None,
}


def sources(config: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Say what files and functions a configuration names, with a digest of each."""
    found = {}
    for key, is_file in FILES.items():
        if is_file(given := config.get(key)) and given is not None:
            found[key] = {"file": given, "sha256": _sha256(Path(given))}
    for key, takes in FUNCTIONS.items():
        if is_name(given := config.get(key)) and isinstance(given, str):
            found[key] = {"function": given, "source": source_digest(find(key, given, *takes))}
    return found


def require(folder: Path, then: Mapping[str, Any]) -> None:
    """Refuse to go on with a run whose files or functions have gone, or whose files have changed."""
    for key in {**FILES, **FUNCTIONS}:
        was = then.get(key)
        if not isinstance(was, dict):
            continue
        if "function" in was:
            try:
                find(key, was["function"], *FUNCTIONS[key])
            except ConfigError as problem:
                raise RunError(f"{folder} was begun with a function that is not found: {problem}") from None
        elif "file" in was:
            named = f"{key}={brief(was['file'])}"
            if not all(is_ordinary(path) for path in files_of(Path(was["file"]))):
                raise RunError(f"{named}, which {folder} was begun with, is not in {Path.cwd()}; put it back there")
            if (now := _sha256(Path(was["file"]))) != was["sha256"]:
                raise RunError(
                    f"{named} is not what {folder} was begun with (SHA-256 {now[:12]}…, then {was['sha256'][:12]}…); "
                    "restore it, or start a new run"
                )


def require_same(folder: Path, then: Mapping[str, Any], now: Mapping[str, Any], *, same_jax: bool) -> None:
    """Refuse to go on with objects that are not those a run was begun with.

    Another version of JAX writes the same model and the same optimiser otherwise, and then they cannot be compared. A
    function may be written otherwise if it makes the same data.
    """
    for key, what in OBJECTS.items():
        before, after = (_without_source(objects.get(key)) for objects in (then, now))
        if before == after or (key in TRACED and not same_jax):
            continue
        if isinstance(before, dict) and "function" in before:
            raise RunError(f"{before['function']} no longer gives the {what} that {folder} was begun with; mend it")
        raise RunError(f"the {what} passed in is not the one {folder} was begun with; pass that one")


def _without_source(digests: Any) -> Any:
    return digests | {"source": None} if isinstance(digests, dict) and "source" in digests else digests


def _sha256(path: Path) -> str:
    """Return the SHA-256 of a file; of a folder that of its files' names and contents."""
    if not path.is_dir():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    each = "".join(f"{own.name} {_sha256(own)}\n" for own in files_of(path))
    return hashlib.sha256(each.encode()).hexdigest()
