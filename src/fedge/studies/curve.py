"""This holds one series of a paper's figure over its seeds, and writes the files it ends in."""

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

from fedge.errors import RunError
from fedge.runner import files
from fedge.runner.rows import Row

COLUMNS = ("accuracy", "global_loss", "objective", "edge_accuracy", "consensus")
Line = dict[str, Any]  # of a CSV file


@dataclass(frozen=True)
class Curve:
    """This is one series of a figure: its rows at each evaluated round, for every seed."""

    variant: str
    label: str
    lr: float
    cells: int
    histories: list[list[Row]]
    tried: dict[float, float] = field(default_factory=dict)  # learning rate → training loss, where it was tuned

    def column(self, name: str) -> np.ndarray[Any, Any]:
        """Return a matrix, seeds × points."""
        return np.array([[value(row, name) for row in history] for history in self.histories], float)

    def summary(self) -> dict[str, Any]:
        """Say where the series ends: mean and standard deviation over seeds."""
        last: dict[str, Any] = {
            "variant": self.variant,
            "series": self.label,
            "cells": self.cells,
            "lr": self.lr,
            "seeds": len(self.histories),
        }
        if self.tried:
            last["tuning_losses"] = {str(lr): _finite(loss) for lr, loss in self.tried.items()}
        last |= {k: self.histories[0][-1][k] for k in ("round", "iteration", "simulated_seconds")}
        last["bytes"] = value(self.histories[0][-1], "bytes")
        for name in ("loss", "client_load", *COLUMNS):
            if name in self.histories[0][-1]:
                end = self.column(name)[:, -1]
                last[name], last[f"{name}_std"] = map(_finite, _mean_and_deviation(end))
                last[f"{name}_each"] = [_finite(x) for x in end.tolist()]
        return last

    def load_to(self, target: float, smooth: int) -> list[float]:
        """Return each seed's client load when accuracy, averaged over `smooth` evaluations, first is at the target."""
        found = []
        for accuracy, loads in zip(self.column("accuracy"), self.column("client_load"), strict=True):
            mean = np.convolve(accuracy, np.full(smooth, 1 / smooth), "valid")
            there = np.flatnonzero(mean >= target)
            found.append(float(loads[smooth - 1 + there[0]]) if len(there) else math.nan)
        return found


def _mean_and_deviation(values: np.ndarray[Any, Any]) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def value(row: Row, name: str) -> float:
    if name == "bytes":
        return float(sum(row["bytes"].values()))
    return math.nan if row[name] is None else float(row[name])


# The lines of a CSV file


def lines_of_rounds(curves: list[Curve]) -> list[Line]:
    """Return mean and standard deviation over seeds, a line for each evaluated round of each curve."""
    lines = []
    for curve in curves:
        table = {n: curve.column(n) for n in COLUMNS if n in curve.histories[0][0]}
        for point, row in enumerate(curve.histories[0]):
            line: Line = {
                "variant": curve.variant, "series": curve.label, "lr": curve.lr, "seeds": len(curve.histories),
                "round": row["round"], "iteration": row["iteration"],
                "simulated_seconds": f"{row['simulated_seconds']:.6g}", "bytes": int(value(row, "bytes")),
                "client_load": f"{row['client_load']:.6g}",
            }  # fmt: skip
            for n, columns in table.items():
                mean, deviation = _mean_and_deviation(columns[:, point])
                line |= {n: f"{mean:.6g}", f"{n}_std": f"{deviation:.3g}"}
            lines.append(line)
    return lines


def lines_of_targets(curves: list[Curve], target: float) -> list[Line]:
    """Return each curve's client load when it reaches an accuracy, at one evaluation and for a mean of five."""
    lines = []
    for curve in curves:
        line: Line = {"variant": curve.variant, "series": curve.label, "cells": curve.cells, "lr": curve.lr,
                      "seeds": len(curve.histories)}  # fmt: skip
        for name, smooth in (("load", 1), ("load_of_5", 5)):
            reached = [x for x in curve.load_to(target, smooth) if math.isfinite(x)]
            mean, deviation = _mean_and_deviation(np.array(reached)) if reached else (math.nan, math.nan)
            line |= {name: f"{mean:.4g}", f"{name}_std": f"{deviation:.3g}", f"{name}_reached": len(reached)}
        lines.append(line)
    return lines


# Files. Each is complete by itself, and a figure made again replaces its variant's part: whatever was there when a
# reproduction was stopped, the same command ends with the same files.


def write_lines(path: Path, variant: str, lines: list[Line], order: Sequence[str]) -> None:
    """Put one variant's lines into a CSV file, its variants in this order; the lines of others stay."""
    old = read_lines(path, ("variant",)) if os.path.lexists(path) else []
    merged = _in_order([line for line in old if line["variant"] != variant] + lines, order)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(dict.fromkeys(key for line in merged for key in line)), restval="nan")
    writer.writeheader()
    writer.writerows(merged)
    write_file(path, text.getvalue().encode())


def write_summary(
    path: Path, heading: dict[str, Any], variant: str, made: dict[str, Any], series: list[dict[str, Any]],
    order: Sequence[str],
) -> None:  # fmt: skip
    """Put how one variant was made, and where its series ended, into a JSON file; those of other variants stay."""
    others, runs = list[dict[str, Any]](), {variant: made}
    if os.path.lexists(path):
        try:
            old = json.loads(read_file(path))
            others = [s for s in old["series"] if s["variant"] != variant]
            runs = {**old["runs"], variant: made}
        except (ValueError, TypeError, KeyError, RecursionError):
            raise RunError(f"{path} is not a summary of this figure; move it away") from None
    runs = {v: runs[v] for v in [*order, *runs] if v in runs}
    summary = heading | {"runs": runs, "series": _in_order(others + series, order)}
    write_file(path, (json.dumps(summary, indent=2, allow_nan=False) + "\n").encode())


def _in_order(lines: list[Line], variants: Sequence[str]) -> list[Line]:
    place = {variant: n for n, variant in enumerate(variants)}
    return sorted(lines, key=lambda line: place.get(line["variant"], len(place)))


def read_lines(path: Path, needed: Sequence[str]) -> list[Line]:
    """Read the lines of a CSV file that has at least these columns."""
    try:
        lines = list(csv.DictReader(io.StringIO(read_file(path), newline="")))
    except (csv.Error, ValueError) as problem:
        raise RunError(f"{path} is not a table of this figure ({problem}); move it away") from None
    lacking = [column for column in needed if any(line.get(column) is None or None in line for line in lines)]
    if lacking:
        raise RunError(f"{path} is not a table of this figure: it lacks {', '.join(lacking)}; move it away")
    return lines


def read_file(path: Path) -> str:
    """Read an ordinary file; a link, which may lead out of the folder, or a pipe is refused."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise RunError(f"{path} is not an ordinary file; move it away")
    return path.read_text(encoding="utf-8")


def write_file(path: Path, content: bytes) -> None:
    """Write a file as a whole, and clear away what a process that was killed while doing so has left."""
    for partial in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        partial.unlink(missing_ok=True)
    files.write_bytes(path, content)
