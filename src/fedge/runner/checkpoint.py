"""Save states so that a reader finds the old one or the new one, and refuse one in which a bit has changed.

The last two are kept. A damaged newest one costs the rounds since the one before, not the run.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fedge.core.contract import State
from fedge.errors import RunError
from fedge.runner import files
from fedge.runner.identity import array_digest, canonical, digest_of

MEMORY = "memory."  # begins the names of what clients and cells remember
NEWEST, BEFORE = "checkpoint.safetensors", "checkpoint.previous.safetensors"
Arrays = dict[str, np.ndarray[Any, Any]]


class DamagedError(RunError):
    """A file of arrays cannot be read, or is not what was written."""


@dataclass(frozen=True)
class Notes:
    """Notes are saved beside a state."""

    round: int  # rounds that are done
    identity: str  # of the run
    metrics: str  # digest of the rows up to this round
    last: str = ""  # digest of one more, where the run ended at a round that is otherwise not tested


def by_name(state: State) -> dict[str, Any]:
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(state)
    }


def save_arrays(path: Path, arrays: Mapping[str, Any], notes: Mapping[str, Any] | None = None) -> str:
    """Write arrays with a digest of them and of the notes; it is returned too."""
    held = {name: np.require(jax.device_get(leaf), requirements="C") for name, leaf in arrays.items()}
    note = dict(notes or {})
    digest = digest_of(_body(held), canonical(note))
    header = {"fedge": canonical({"notes": note, "sha256": digest})}  # one entry: of several the order is any
    with files.replacing(path) as partial:
        try:
            save_file(held, partial, metadata=header)
        except SafetensorError as problem:
            raise OSError(None, f"not written ({problem})", str(path)) from None
    return digest


def read_arrays(path: Path) -> tuple[Arrays, dict[str, Any], str]:
    """Return arrays, notes and digest, when all are as they were written."""
    try:
        if not path.is_file():
            raise DamagedError(f"{path} is missing")
        with safe_open(path, "numpy") as file:
            header = (file.metadata() or {}).get("fedge", "{}")
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, MemoryError) as problem:
        reason = (str(problem).splitlines() or ["its header"])[0][:100]
        raise DamagedError(f"{path} cannot be read ({reason})") from None
    try:
        about = files.parse_json(header, str(path))
    except RunError as problem:
        raise DamagedError(str(problem)) from None
    notes = about.get("notes") if isinstance(about, dict) else None
    if not isinstance(notes, dict) or about.get("sha256") != digest_of(_body(arrays), canonical(notes)):
        raise DamagedError(f"{path} is not as it was written: its checksum does not hold")
    return arrays, notes, about["sha256"]


def _body(arrays: Arrays) -> str:
    table = {name: [str(a.dtype), list(a.shape), array_digest(a)] for name, a in arrays.items()}
    return json.dumps(table, sort_keys=True)


def save(folder: Path, state: State, notes: Notes) -> None:
    """Make this the newest checkpoint, and the newest so far the one before it."""
    with contextlib.suppress(FileNotFoundError):
        os.replace(folder / NEWEST, folder / BEFORE)
    save_arrays(folder / NEWEST, by_name(state), asdict(notes))


def load(path: Path, like: State) -> tuple[State, Notes]:
    """Load a state of the same structure as `like`."""
    arrays, stored, _ = read_arrays(path)
    kinds = {"round": int, "identity": str, "metrics": str, "last": str}
    if stored.keys() != kinds.keys() or any(type(stored[key]) is not kind for key, kind in kinds.items()):
        raise DamagedError(f"{path} is no checkpoint of this version of fedge")
    return as_state(arrays, like, path), Notes(**stored)


def as_state(arrays: Arrays, like: State, path: Path) -> State:
    """Return arrays that were read from a file as a state of the same structure as `like`."""
    wanted = by_name(like)
    held, needed = ({n: (np.shape(a), str(a.dtype)) for n, a in each.items()} for each in (arrays, wanted))
    if held != needed:
        others = dict(held.items() ^ needed.items())
        if all(name.startswith(MEMORY) for name in others) and held.keys() != needed.keys():
            fleets = "a fleet, whose clients keep their memories themselves"
            whose = fleets if needed.keys() - held.keys() else "fedge run, with the memories of clients in it"
            raise RunError(f"{path} was written by {whose}; continue it as it was begun")
        raise RunError(f"{path} holds the state of another model or algorithm; it cannot be continued here")
    leaves = [jnp.asarray(arrays[name]) for name in wanted]
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(like), leaves)
