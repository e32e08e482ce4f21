"""One series of a paper's figure over its seeds, and the files it is written to."""

from __future__ import annotations

import csv
import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedge.runner import files
from fedge.runner.record import Row

COLUMNS = ("accuracy", "global_loss", "edge_accuracy", "consensus")


@dataclass(frozen=True)
class Curve:
    """One series of a figure: its rows at each evaluated round, for every seed."""

    variant: str
    label: str
    lr: float
    histories: list[list[Row]]
    tried: dict[float, float] = field(default_factory=dict)  # learning rate → training loss, where it was tuned

    def column(self, name: str) -> np.ndarray[Any, Any]:
        """seeds × points."""
        return np.array([[value(row, name) for row in history] for history in self.histories], float)

    def summary(self) -> dict[str, Any]:
        """The end of the series, mean and standard deviation over seeds."""
        last: dict[str, Any] = {
            "variant": self.variant,
            "series": self.label,
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
                last[name], last[f"{name}_std"] = map(_finite, _mean_and_spread(end))
                last[f"{name}_each"] = [_finite(x) for x in end.tolist()]
        return last

    def load_to(self, target: float, smooth: int) -> list[float]:
        """For each seed, the client load when accuracy, averaged over `smooth` evaluations, first is at the target."""
        found = []
        for accuracy, loads in zip(self.column("accuracy"), self.column("client_load"), strict=True):
            mean = np.convolve(accuracy, np.full(smooth, 1 / smooth), "valid")
            there = np.flatnonzero(mean >= target)
            found.append(float(loads[smooth - 1 + there[0]]) if len(there) else math.nan)
        return found


def _mean_and_spread(values: np.ndarray[Any, Any]) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def value(row: Row, name: str) -> float:
    if name == "bytes":
        return float(sum(row["bytes"].values()))
    return math.nan if row[name] is None else float(row[name])


# Files

Line = dict[str, Any]


def curve_rows(curves: list[Curve]) -> list[Line]:
    """Mean and standard deviation over seeds at each evaluated round."""
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
                mean, spread = _mean_and_spread(columns[:, point])
                line |= {n: f"{mean:.6g}", f"{n}_std": f"{spread:.3g}"}
            lines.append(line)
    return lines


def target_rows(curves: list[Curve], target: float) -> list[Line]:
    """The client load at which each series reaches an accuracy: at the first evaluation, and for a mean of five."""
    lines = []
    for curve in curves:
        method, _, x = curve.label.partition(", N = ")
        line: Line = {"variant": curve.variant, "series": method, "cells": x, "lr": curve.lr,
                      "seeds": len(curve.histories)}  # fmt: skip
        for name, smooth in (("load", 1), ("load_of_5", 5)):
            reached = [x for x in curve.load_to(target, smooth) if math.isfinite(x)]
            mean, spread = _mean_and_spread(np.array(reached)) if reached else (math.nan, math.nan)
            line |= {name: f"{mean:.4g}", f"{name}_std": f"{spread:.3g}", f"{name}_reached": len(reached)}
        lines.append(line)
    return lines


def keep(path: Path, variant: str, lines: list[Line]) -> None:
    """Write one variant's lines; those of other variants stay."""
    if path.exists():
        with path.open() as file:
            lines = [old for old in csv.DictReader(file) if old["variant"] != variant] + lines
    partial = path.with_name(path.name + ".part")
    with partial.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for line in lines for key in line)), restval="nan")
        writer.writeheader()
        writer.writerows(lines)
    os.replace(partial, path)


def summarise(
    path: Path, name: str, figure: dict[str, Any], variant: str, made: dict[str, Any], series: list[dict[str, Any]]
) -> None:
    old = json.loads(path.read_text()) if path.exists() else {"runs": {}, "series": []}
    kept = [s for s in old["series"] if s["variant"] != variant]
    summary = {"figure": name, "caption": figure["caption"], "runs": old["runs"] | {variant: made}}
    files.write_json(path, summary | {"series": kept + series})
