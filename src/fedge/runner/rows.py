"""The rows of metrics.jsonl are read here, with suspicion."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import NoneType
from typing import Any

from fedge.errors import RunError
from fedge.runner import files

Row = dict[str, Any]
AFTER_TESTED = ("train_loss", "simulated_seconds", "bytes")  # columns that follow those of the test set
NUMBERS = (int, float)
COLUMNS: dict[str, Any] = {
    "round": int, "iteration": int, "loss": (*NUMBERS, NoneType), "simulated_seconds": NUMBERS, "bytes": dict,
}  # fmt: skip


def read_rows(path: Path) -> list[tuple[int, str]]:
    """Read (round, line) of each row; a line cut short by a crash, and all after it, are left out."""
    found: list[tuple[int, str]] = []
    for line in files.read_text(path).splitlines(keepends=True) if path.exists() else []:
        if not line.endswith("\n"):
            break
        try:
            found.append((row_of(line, path)["round"], line))
        except RunError:
            break
    return found


def last_row(path: Path) -> Row | None:
    """Read the last whole row of a run, without looking at those before it."""
    lines = files.read_text(path).splitlines(keepends=True) if path.exists() else []
    whole = [line for line in lines[-2:] if line.endswith("\n")]
    if not whole:
        return None
    try:
        return row_of(whole[-1], path)
    except RunError:  # what is damaged ends the record
        rows = read_rows(path)
        return row_of(rows[-1][1], path) if rows else None


def tested(row: Row) -> list[str]:
    """Name what was found on the test set, as the row has it: the metrics and the loss, the main one first."""
    names = itertools.takewhile(lambda key: key not in AFTER_TESTED, row)
    return [name for name in names if name not in ("round", "iteration")]


def row_of(line: str, path: Path) -> Row:
    row = files.parse_json(line, str(path))
    if not isinstance(row, dict) or any(not isinstance(row.get(key, ...), kind) for key, kind in COLUMNS.items()):
        raise RunError(f"{path} is damaged (a line is no row of a run); restore it")
    return row


def regular_and_last(lines: list[tuple[int, str]], every: int) -> tuple[list[str], list[str]]:
    """Separate the rows that any longer run has too from the one at the end, which goes when a run is extended."""
    return [line for n, line in lines if n % every == 0], [line for n, line in lines if n % every]
