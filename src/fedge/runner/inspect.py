"""A run folder is looked at from outside: what it says of its run, and whether it is still what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedge.errors import RunError
from fedge.runner import checkpoint, files
from fedge.runner.record import (
    CONFIG,
    DIVERGED,
    FINISHED,
    LEDGER,
    METRICS,
    RESULT,
    RUNNING,
    WEIGHTS,
    file_digest,
    read_about,
    reopen,
)
from fedge.runner.rows import read_rows, row_of


def summary(folder: Path) -> dict[str, Any]:
    """Sum up what run.json and the metrics say of a run, without looking into its checkpoints."""
    about = read_about(folder)
    lines = read_rows(folder / METRICS)
    state = about.get("state")
    if state == RUNNING and not files.is_locked(folder):
        state = "lost"  # its process died without a word
    return {
        "out": str(folder),
        "state": state,
        "algorithm": about["config"].get("algorithm"),
        **{key: about.get(key) for key in ("begun", "ended", "command", "seed", "versions", "layout", "identity")},
        "rounds": about["config"].get("rounds"),
        "reached": about.get("reached"),
        "final": row_of(lines[-1][1], folder / METRICS) if lines else None,
        "config": about["config"],
    }


def verify(folder: Path) -> list[str]:
    """Compare everything that a run has left with the digests it has left; return what was found right.

    The first thing that is wrong is raised.
    """
    record = reopen(folder)
    good = ["identity of the configuration, the data and the version"]
    for name in (checkpoint.NEWEST, checkpoint.BEFORE):
        if (folder / name).exists():
            _, notes, _ = checkpoint.read_arrays(folder / name)
            if notes.get("identity") != record.identity:
                raise RunError(f"{folder / name} belongs to another run")
            good.append(f"{name}, after round {notes.get('round')}")
    if record.about.get("state") not in (FINISHED, DIVERGED):
        return good
    for name in (CONFIG, METRICS, LEDGER, RESULT, WEIGHTS):
        found = checkpoint.read_arrays(folder / name)[2] if name == WEIGHTS else file_digest(folder / name)
        if found != record.about["digests"].get(name):
            raise RunError(f"{folder / name} is not as it was written: its checksum does not hold")
        good.append(name)
    return good
