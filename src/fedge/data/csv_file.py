"""This file reads a table of numbers from a CSV file: columns named in the first line, a sample in each other row."""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedge.data.own_numbers import read_file
from fedge.errors import DataError, brief, suggestion

MISSING = ("", "na", "n/a", "nan", "null", "none", "?")  # what tables have where nothing is known


@dataclass(frozen=True, eq=False)
class Table:
    features: NDArray[np.float64]  # samples × columns
    target: list[str]
    client: list[str] | None  # of the column that says who a sample comes from


@dataclass(frozen=True)
class _Columns:
    """These are the columns of a file: what is predicted, who a sample comes from, and the features."""

    what: str
    names: list[str]
    target: int
    client: int | None
    features: list[int]

    @classmethod
    def of(cls, what: str, names: list[str], target: str, client: str | None) -> _Columns:
        if unnamed := [number for number, name in enumerate(names, 1) if not name]:
            raise DataError(f"{what}: column {unnamed[0]} has no name in the first line; name it, or leave it out")
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise DataError(f"{what}: column {brief(twice)} stands twice in the first line; give each its own name")
        for key, name in (("target", target), ("client_column", client)):
            if name is not None and name not in names:
                listed = brief(", ".join(names), 300)
                raise DataError(
                    f"{what} has no column {brief(name)} ({key}); its first line names: {listed}"
                    f"{suggestion(name, names)}{_hint(names)}"
                )
        if target == client:
            raise DataError(f"{what}: column {brief(target)} cannot be both target and client_column; name another")
        others = [column for column, name in enumerate(names) if name not in (target, client)]
        if not others:
            raise DataError(f"{what} has no feature: add a column of numbers beside {brief(target)}")
        return cls(what, names, names.index(target), None if client is None else names.index(client), others)

    def complain(self, row: list[str], number: int) -> DataError:
        """Say which columns of this row hold no number."""
        words = [c for c in self.features if not reads_as_number(row[c])]
        missing = [c for c in words if row[c].strip().lower() in MISSING]
        if missing:
            return self.missing(missing[0], number)
        named = " and ".join(f"{brief(self.names[c], 40)} ('{brief(row[c], 40)}')" for c in words[:5])
        return DataError(
            f"{self.what}: no number stands in row {number:,} of {named}; write categories as columns of 0 and 1, or "
            "leave the column out of the file"
        )

    def missing(self, column: int, number: int) -> DataError:
        return DataError(
            f"{self.what}: column {brief(self.names[column])} has no value in row {number:,} (after the first line); "
            "fill it in or leave the row out"
        )


def read_csv(what: str, path: Path, target: str, client: str | None) -> Table:
    """Read a file of comma-separated values; everything but the target and the client must be numbers."""
    content = read_file(what, path)
    try:
        lines = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        names = [name.strip() for name in next((row for row in lines if row), [])]
        if not names:
            raise DataError(f"{what} is empty; its first line names the columns, and samples follow")
        columns = _Columns.of(what, names, target, client)
        return _read_rows(columns, lines)
    except UnicodeDecodeError as problem:
        raise DataError(f"{what}: byte {problem.start} is not UTF-8; save it as UTF-8") from None
    except csv.Error as problem:
        raise DataError(f"{what} is no table of comma-separated values ({problem}); save it as CSV") from None


def _read_rows(columns: _Columns, rows: Iterable[list[str]]) -> Table:
    what, width = columns.what, len(columns.names)
    numbers, targets, clients = array("d"), list[str](), list[str]()
    for row in rows:
        if not row:
            continue
        count = len(targets) + 1
        if len(row) != width:
            raise DataError(
                f"{what}: row {count:,} (after the first line) has {len(row)} values for {width} columns; mend it"
            )
        try:
            numbers.extend([float(row[c]) for c in columns.features])
        except ValueError:
            raise columns.complain(row, count) from None
        targets.append(_word(columns, row, columns.target, count))
        if columns.client is not None:
            clients.append(_word(columns, row, columns.client, count))
    if not targets:
        raise DataError(f"{what} has no rows after its first line; add samples")
    features = np.frombuffer(numbers).reshape(len(targets), -1)
    if not np.isfinite(features).all():
        row_at, column = np.argwhere(~np.isfinite(features))[0]
        raise columns.missing(columns.features[column], int(row_at) + 1)
    return Table(features, targets, clients if columns.client is not None else None)


def _word(columns: _Columns, row: list[str], column: int, number: int) -> str:
    word = row[column].strip()
    if word.lower() in ("", "nan"):
        raise columns.missing(column, number)
    return word


def reads_as_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _hint(names: list[str]) -> str:
    """Tell what is wrong with a first line that names no columns."""
    if all(map(reads_as_number, names)):
        return "; the first line must name the columns"
    other = next((mark for mark in (";", "\t") if len(names) == 1 and mark in names[0]), None)
    return "" if other is None else f"; separate values by commas instead of {'tabs' if other == chr(9) else other}"
