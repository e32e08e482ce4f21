"""What a run leaves behind, file by file.

    config.json            the resolved configuration
    run.json               seed, versions and hardware
    metrics.jsonl          one line per evaluated round
    checkpoint.safetensors the state after a round, to resume from
    weights.safetensors    the final model
    result.json            the object that `--format json` prints

Files that must be whole are written beside their place and moved into it.
"""

from __future__ import annotations

import json
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fedge._version import __version__
from fedge.core.contract import State
from fedge.errors import RunError

Row = dict[str, Any]
VERSIONS = ("jax", "jaxlib", "flax", "optax", "numpy")


def create(folder: Path) -> Path:
    """A folder for a new run; one that already holds a run is left alone."""
    if (folder / "config.json").exists():
        raise RunError(f"{folder} already holds a run; continue it with --resume {folder} or choose another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise RunError(f"{folder} is not empty; choose another --out")
    except OSError as problem:
        raise RunError(f"cannot write to {folder}: {problem.strerror}; choose another --out") from None
    return folder


def write_json(path: Path, value: Any) -> None:
    partial = path.with_name(path.name + ".part")
    partial.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n")
    os.replace(partial, path)


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except OSError:
        raise RunError(f"{path} is missing; {path.parent} does not hold a run") from None
    except json.JSONDecodeError as problem:
        raise RunError(f"{path} is damaged ({problem}); the run cannot be continued") from None


def environment(seed: int) -> dict[str, Any]:
    devices = jax.devices()
    return {
        "seed": seed,
        "versions": {"fedge": __version__, "python": platform.python_version()}
        | {name: metadata.version(name) for name in VERSIONS},
        "platform": platform.platform(),
        "processor": _processor(),
        "devices": [d.device_kind for d in devices],
        "backend": devices[0].platform,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


# Metrics


def append_row(folder: Path, row: Row) -> None:
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row, allow_nan=False) + "\n")


def rewind(folder: Path, evaluated: list[int]) -> list[Row]:
    """The rows of the given rounds; later ones, and a line cut short by a crash, are dropped from the file too."""
    path, rows = folder / "metrics.jsonl", []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            break
        if row["round"] in evaluated:
            rows.append(row)
    if [row["round"] for row in rows] != evaluated:
        raise RunError(f"{path} lacks rounds that the checkpoint says were evaluated; the run cannot be continued")
    partial = path.with_name(path.name + ".part")
    partial.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.replace(partial, path)
    return rows


# States


def named(state: State) -> dict[str, Any]:
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(state)
    }


def save_state(path: Path, state: State, **notes: int) -> None:
    """Atomic: a reader finds the old file or the new one, also after a crash."""
    partial = path.with_name(path.name + ".part")
    arrays = {name: np.ascontiguousarray(jax.device_get(leaf)) for name, leaf in named(state).items()}
    save_file(arrays, partial, metadata={key: str(value) for key, value in notes.items()})
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    os.replace(partial, path)


def load_state(path: Path, like: State) -> tuple[State, dict[str, int]]:
    """A state of the same structure as `like`, and the notes saved with it."""
    try:
        with safe_open(path, "numpy") as file:
            notes = {key: int(value) for key, value in (file.metadata() or {}).items()}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as problem:
        raise RunError(f"{path} cannot be read ({problem}); the run cannot be continued from it") from None
    wanted = named(like)
    if {n: (a.shape, str(a.dtype)) for n, a in arrays.items()} != {
        n: (a.shape, str(a.dtype)) for n, a in wanted.items()
    }:
        raise RunError(f"{path} holds the state of another model or algorithm; it cannot be continued here")
    leaves = [arrays[name] for name in wanted]
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(like), leaves), notes
