"""Papers' figures as recipes: each series over several seeds, as printed and with a tuned learning rate.

A recipe file (`papers/NAME/recipes.toml`) holds the keys; this holds the procedure, which is the same for every paper:
all series of a figure share data, initial model and sample order, seed by seed.
"""

from __future__ import annotations

import csv
import math
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedge.data import Dataset, load
from fedge.errors import ConfigError, unknown
from fedge.runner import record
from fedge.runner.config import Config, read_toml
from fedge.runner.loop import Workshop, price, run
from fedge.runner.record import Row
from fedge.runner.setup import experiment

Report = Callable[[str], None]
PRINTED, TUNED = "printed", "tuned"


@dataclass(frozen=True)
class Curve:
    """One series of a figure: its rows at each evaluated round, for every seed."""

    variant: str
    label: str
    lr: float
    histories: list[list[Row]]

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
        last |= {k: self.histories[0][-1][k] for k in ("round", "iteration", "simulated_seconds")}
        last["bytes"] = value(self.histories[0][-1], "bytes")
        for name in ("accuracy", "loss", "global_loss", "edge_accuracy", "consensus"):
            if name in self.histories[0][-1]:
                end = self.column(name)[:, -1]
                spread = float(end.std(ddof=1)) if len(end) > 1 else 0.0
                last[name], last[f"{name}_std"] = (v if math.isfinite(v) else None for v in (float(end.mean()), spread))
        return last


def value(row: Row, name: str) -> float:
    if name == "bytes":
        return float(sum(row["bytes"].values()))
    return math.nan if row[name] is None else float(row[name])


def recipes(paper: str, folder: Path | None = None) -> tuple[dict[str, Any], Path]:
    """A paper's recipes and their folder, in the working directory or the checkout the package was installed from."""
    places = [folder] if folder else [Path("papers"), Path(__file__).parents[3] / "papers"]
    known = sorted({p.parent.name for place in places for p in place.glob("*/recipes.toml")})
    for place in places:
        if (place / paper / "recipes.toml").exists():
            return read_toml(place / paper / "recipes.toml"), place / paper
    raise ConfigError(unknown("paper", paper, known))


def figures_of(target: str, out: Path | None = None) -> list[tuple[str, dict[str, Any], Path]]:
    """(name, recipe, folder for its results) of the figures meant by `paper` or `paper/figure`."""
    paper, _, wanted = target.partition("/")
    recipe, home = recipes(paper)
    if wanted and wanted not in recipe["figures"]:
        raise ConfigError(unknown(f"figure of {paper}", wanted, recipe["figures"]))
    return [(n, f, out or home / "results") for n, f in recipe["figures"].items() if not wanted or n == wanted]


def reproduce(
    target: str, name: str, folder: Path, seeds: int | None, variants: tuple[str, ...], report: Report
) -> None:
    """Run one figure's series and write its CSV and summary."""
    recipe, _ = recipes(target.partition("/")[0])
    figure = recipe["figures"][name]
    report(f"{name}: {figure['caption']}")
    began = time.perf_counter()
    curves = _figure(recipe, figure, load(recipe["sets"][figure["set"]]["data"]), seeds, variants, report)
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / f"{name}.csv", curves)
    summary = {"figure": name, "caption": figure["caption"], "minutes": round((time.perf_counter() - began) / 60, 2)}
    environment = {k: v for k, v in record.environment(0).items() if k != "seed"}
    series = [c.summary() for c in curves]
    record.write_json(folder / f"{name}.json", summary | {"environment": environment, "series": series})


def _figure(
    recipe: dict[str, Any], figure: dict[str, Any], dataset: Dataset, seeds: int | None, variants: tuple[str, ...],
    report: Report,
) -> list[Curve]:  # fmt: skip
    workshop, curves = Workshop(), list[Curve]()
    count = seeds or figure.get("seeds", recipe["seeds"])
    for variant in variants:
        for series in figure["series"]:
            keys = recipe["base"] | recipe["sets"][figure["set"]] | figure["keys"] | series
            label = keys.pop("label")
            if variant == TUNED:
                tried = {}
                for lr in [keys["lr"], *figure["tune"]]:
                    rows = _history(keys | {"lr": lr, "seed": recipe["tuning_seed"]}, 1, dataset, workshop)
                    loss = rows[-1]["global_loss"]  # None where it diverged
                    tried[lr] = math.inf if loss is None else loss
                keys["lr"] = min(tried, key=lambda lr: tried[lr])
                report(f"{label}: tuned to {keys['lr']:g} (training loss " + ", ".join(
                    f"{loss:.3f} at {lr:g}" for lr, loss in sorted(tried.items())) + ")")  # fmt: skip
            histories = [_history(keys | {"seed": s}, figure["points"], dataset, workshop) for s in range(count)]
            curve = Curve(variant, label, keys["lr"], histories)
            end = curve.summary()
            report(
                f"{variant}, {label}, lr {end['lr']:g}: K = {end['iteration']}, accuracy "
                f"{end['accuracy']:.4f} ± {end['accuracy_std']:.4f}, training loss {end['global_loss']}"
            )
            curves.append(curve)
    return curves


def _history(keys: dict[str, Any], points: int, dataset: Dataset, workshop: Workshop) -> list[Row]:
    """One run, evaluated about `points` times; its folder is not kept."""
    rounds = keys.get("rounds") or _rounds(keys, dataset)
    keys = keys | {"eval_every": max(1, rounds // points)}
    with tempfile.TemporaryDirectory(prefix="fedge-") as folder:
        result = run(keys, out=Path(folder) / "run", dataset=dataset, workshop=workshop)
    return result.history


def _rounds(keys: dict[str, Any], dataset: Dataset) -> int:
    """How many rounds a budget allows."""
    return len(price(experiment(Config.of(keys), dataset)))


def write_csv(path: Path, curves: list[Curve]) -> None:
    """Mean and standard deviation over seeds at each evaluated round."""
    names = [n for n in ("accuracy", "global_loss", "edge_accuracy", "consensus") if n in curves[0].histories[0][0]]
    partial = path.with_name(path.name + ".part")
    with partial.open("w", newline="") as file:
        writer = csv.writer(file)
        ends = [f"{n}{suffix}" for n in names for suffix in ("", "_std")]
        writer.writerow(["variant", "series", "lr", "seeds", "iteration", "simulated_seconds", "bytes", *ends])
        for curve in curves:
            table = {n: curve.column(n) for n in names if n in curve.histories[0][0]}
            for point, row in enumerate(curve.histories[0]):
                cells: list[Any] = [curve.variant, curve.label, curve.lr, len(curve.histories), row["iteration"],
                                    f"{row['simulated_seconds']:.6g}", int(value(row, "bytes"))]  # fmt: skip
                for n in names:
                    column = table[n][:, point] if n in table else np.array([np.nan])
                    cells += [f"{column.mean():.6g}", f"{column.std(ddof=1) if len(column) > 1 else 0:.3g}"]
                writer.writerow(cells)
    os.replace(partial, path)
