"""A run folder is looked at from outside: what it says of its run, and whether it is still what was written."""

from __future__ import annotations

from collections.abc import Mapping
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
    SETTING,
    WEIGHTS,
    file_digest,
    read_about,
    reopen,
)
from fedge.runner.rows import last_row


def summary(folder: Path) -> dict[str, Any]:
    """Sum up what run.json and the metrics say of a run, without looking into its checkpoints."""
    about = read_about(folder)
    return {
        "out": str(folder),
        "state": state_of(folder, about),
        "algorithm": about["config"].get("algorithm"),
        **{key: about.get(key) for key in ("begun", "ended", "command", "seed", "versions", "layout", "identity")},
        "rounds": about["config"].get("rounds"),
        "reached": about.get("reached"),
        "final": last_row(folder / METRICS),
        "config": about["config"],
    }


def state_of(folder: Path, about: Mapping[str, Any]) -> str:
    """Say how far a run has come, as run.json has it: running, stopped, failed, diverged, finished, or lost."""
    state = str(about.get("state"))
    return "lost" if state == RUNNING and not files.is_locked(folder) else state  # its process died without a word


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
    for name in (CONFIG, SETTING, METRICS, LEDGER, RESULT, WEIGHTS):
        found = checkpoint.read_arrays(folder / name)[2] if name == WEIGHTS else file_digest(folder / name)
        if found != record.about["digests"].get(name):
            raise RunError(f"{folder / name} is not as it was written: its checksum does not hold")
        good.append(name)
    return good
