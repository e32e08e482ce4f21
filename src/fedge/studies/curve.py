"""This holds one series of a paper's figure, every seed of it, and the files it is kept in.

`FIGURE.csv` has a line for each seed and each evaluated round: everything that is drawn, tabled or judged is computed
from it. `FIGURE.json` says how the runs were made, and by which losses a learning rate was chosen.
"""

from __future__ import annotations

import csv
import glob
import io
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedge.errors import RunError
from fedge.runner import files
from fedge.runner.rows import Row

Table = NDArray[np.float64]  # seeds × points
Tried = dict[float, dict[int, float]]  # learning rate → seed → training loss, where a rate was tuned
Line = dict[str, Any]  # of a CSV file
NAMES = ("variant", "series", "cells", "lr", "seed")  # of a line: which run it is of
AXES = ("round", "iteration", "simulated_seconds", "bytes", "client_load", "edge_load", "cloud_load")
MEASURED = ("accuracy", "loss", "global_loss", "objective", "edge_accuracy", "consensus", "zeta")
WIDTH = {"round": ".0f", "iteration": ".0f", "bytes": ".0f"}  # how a column is written; the others to six digits


@dataclass(frozen=True)
class Curve:
    """This is one series of a figure: what was measured at each evaluated round, for every seed."""

    variant: str
    label: str
    cells: int
    lr: float
    seeds: list[int]
    columns: dict[str, Table]
    tried: Tried = field(default_factory=dict)

    @classmethod
    def of(
        cls, variant: str, label: str, cells: int, lr: float, histories: dict[int, list[Row]], tried: Tried
    ) -> Curve:
        """Take the columns that all rows have out of each seed's rows."""
        rows = [row for history in histories.values() for row in history]
        names = [n for n in (*AXES, *MEASURED) if all(n in row for row in rows)]
        table = {n: np.array([[value(row, n) for row in each] for each in histories.values()], float) for n in names}
        return cls(variant, label, cells, lr, list(histories), table, tried)

    def at(self, axis: str, place: float, column: str) -> Table:
        """Return each seed's value at the last evaluation at or before a place on an axis."""
        ends = [np.searchsorted(x, place * (1 + 1e-9), "right") - 1 for x in self.columns[axis]]
        values = self.columns[column]
        return np.array([row[end] if end >= 0 else math.nan for row, end in zip(values, ends, strict=True)])

    def load_to(self, target: float, smooth: int = 1) -> Table:
        """Return each seed's client load when accuracy, averaged over `smooth` evaluations, first is at the target."""
        found = []
        for accuracy, loads in zip(self.columns["accuracy"], self.columns["client_load"], strict=True):
            mean = np.convolve(accuracy, np.full(smooth, 1 / smooth), "valid")
            there = np.flatnonzero(mean >= target)
            found.append(loads[smooth - 1 + there[0]] if len(there) else math.nan)
        return np.array(found)

    def summary(self) -> dict[str, Any]:
        """Say which runs these are, and how the rate was chosen."""
        made: dict[str, Any] = {
            "variant": self.variant, "series": self.label, "cells": self.cells, "lr": self.lr, "seeds": self.seeds
        }  # fmt: skip
        if self.tried:
            losses = {lr: {str(s): _finite(x) for s, x in each.items()} for lr, each in self.tried.items()}
            made["tuning_losses"] = {f"{lr:g}": each for lr, each in sorted(losses.items())}
        return made


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def value(row: Row, name: str) -> float:
    if name == "bytes":
        return float(sum(row["bytes"].values()))
    return math.nan if row[name] is None else float(row[name])


def names_of(curves: Sequence[Curve]) -> list[str]:
    """Name each curve: its label, with the number of cells where several of a variant bear the same."""
    labels = [(c.variant, c.label) for c in curves]
    return [c.label if labels.count((c.variant, c.label)) == 1 else f"{c.label}, N = {c.cells}" for c in curves]


# Files. Each is complete by itself, and a figure made again replaces its variant's part.


def write_curves(path: Path, variant: str, curves: Sequence[Curve], order: Sequence[str]) -> None:
    """Put one variant's curves into a CSV file, its variants in this order; the lines of others stay."""
    old = _read_lines(path) if os.path.lexists(path) else []
    lines = [line for line in old if line["variant"] != variant]
    for curve in curves:
        names = {"variant": curve.variant, "series": curve.label, "cells": curve.cells, "lr": f"{curve.lr:g}"}
        for n, seed in enumerate(curve.seeds):
            for point in range(curve.columns["round"].shape[1]):
                cells = {c: f"{t[n, point]:{WIDTH.get(c, '.6g')}}" for c, t in curve.columns.items()}
                lines.append(names | {"seed": seed} | cells)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, _fields(lines), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(_in_order(lines, order))
    write_file(path, text.getvalue().encode())


def _fields(lines: list[Line]) -> list[str]:
    there = {column for line in lines for column in line}
    return [column for column in (*NAMES, *AXES, *MEASURED) if column in there]


def read_curves(path: Path) -> list[Curve]:
    """Read all curves of a figure."""
    groups: dict[tuple[str, ...], dict[str, list[Line]]] = {}
    for line in _read_lines(path):
        groups.setdefault(tuple(line[name] for name in NAMES[:-1]), {}).setdefault(line["seed"], []).append(line)
    curves = []
    try:
        for (variant, label, cells, lr), seeds in groups.items():
            first = next(iter(seeds.values()))[0]
            table = {
                c: np.array([[float(line[c]) for line in lines] for lines in seeds.values()])
                for c in (*AXES, *MEASURED) if first.get(c)
            }  # fmt: skip
            curves.append(Curve(variant, label, int(cells), float(lr), [int(s) for s in seeds], table))
    except (ValueError, TypeError, KeyError) as problem:
        raise RunError(f"{path} is damaged ({problem}); make it again without --draw only") from None
    return curves


def _read_lines(path: Path) -> list[Line]:
    """Read the lines of a CSV file that a figure's curves are in."""
    try:
        lines = list(csv.DictReader(io.StringIO(read_file(path), newline="")))
    except (csv.Error, ValueError) as problem:
        raise RunError(f"{path} is not a table of this figure ({problem}); move it away") from None
    lacking = [c for c in (*NAMES, "round") if any(line.get(c) is None or None in line for line in lines)]
    if lacking or not lines:
        what = f"it lacks {', '.join(lacking)}" if lacking else "it has no lines"
        raise RunError(f"{path} is not a table of this figure: {what}; move it away")
    return lines


def write_summary(
    path: Path, heading: dict[str, Any], variant: str, made: dict[str, Any], series: list[dict[str, Any]],
    order: Sequence[str],
) -> None:  # fmt: skip
    """Put how one variant was made, and its series, into a JSON file; those of other variants stay."""
    others, runs = list[dict[str, Any]](), {variant: made}
    if os.path.lexists(path):
        old = read_summary(path)
        others = [s for s in old["series"] if s["variant"] != variant]
        runs = {**old["runs"], variant: made}
    runs = {v: runs[v] for v in [*order, *runs] if v in runs}
    summary = heading | {"runs": runs, "series": _in_order(others + series, order)}
    write_file(path, (json.dumps(summary, indent=2, allow_nan=False) + "\n").encode())


def read_summary(path: Path) -> dict[str, Any]:
    """Read how a figure's runs were made."""
    try:
        found = json.loads(read_file(path))
        if all(isinstance(s["variant"], str) for s in found["series"]) and isinstance(found["runs"], dict):
            return dict(found)
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise RunError(f"{path} is not a summary of this figure; move it away")


def _in_order(lines: list[Line], variants: Sequence[str]) -> list[Line]:
    place = {variant: n for n, variant in enumerate(variants)}
    return sorted(lines, key=lambda line: place.get(line["variant"], len(place)))


def read_file(path: Path, errors: str = "strict") -> str:
    """Read an ordinary file; a link, which may lead out of the folder, or a pipe is refused."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise RunError(f"{path} is not an ordinary file; move it away")
    return path.read_text(encoding="utf-8", errors=errors)


def write_file(path: Path, content: bytes) -> None:
    """Write a file as a whole, and clear away what a process that was killed while doing so has left."""
    for partial in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        partial.unlink(missing_ok=True)
    files.write_bytes(path, content)
