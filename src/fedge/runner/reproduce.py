"""Papers' figures as recipes: each series over several seeds, in variants such as printed and tuned.

A recipe file (`papers/NAME/recipes.toml`) holds the keys; this holds the procedure, which is the same for every paper:
all series of a figure share data, initial model and sample order, seed by seed. A run two figures need is made once.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from fedge.data import Dataset, load
from fedge.errors import ConfigError, unknown
from fedge.runner import record
from fedge.runner.config import Config, foreign, read_toml
from fedge.runner.curve import Curve, curve_rows, keep, summarise, target_rows
from fedge.runner.loop import ready, run
from fedge.runner.price import price
from fedge.runner.record import Row
from fedge.runner.setup import experiment
from fedge.runner.workshop import Workshop

Report = Callable[[str], None]
VARIANTS: dict[str, dict[str, Any]] = {"printed": {}, "tuned": {"tune": True}}  # unless a recipe says otherwise


def recipes(paper: str, folder: Path | None = None) -> tuple[dict[str, Any], Path]:
    """A paper's recipes and their folder, in the working directory or the checkout the package was installed from."""
    places = [folder] if folder else [Path("papers"), Path(__file__).parents[3] / "papers"]
    known = sorted({p.parent.name for place in places for p in place.glob("*/recipes.toml")})
    for place in places:
        if (place / paper / "recipes.toml").exists():
            return read_toml(place / paper / "recipes.toml"), place / paper
    raise ConfigError(unknown("paper", paper, known))


def figures_of(target: str, out: Path | None = None) -> list[tuple[str, dict[str, Any], Path]]:
    """(name, recipe, folder for its results) of the figures meant by `paper`, `paper/figure` or `paper/fig*`."""
    paper, _, wanted = target.partition("/")
    recipe, home = recipes(paper)
    chosen = [name for name in recipe["figures"] if fnmatchcase(name, wanted or "*")]
    if not chosen:
        raise ConfigError(unknown(f"figure of {paper}", wanted, recipe["figures"]))
    return [(name, recipe["figures"][name], out or home / "results") for name in chosen]


def reproduce(
    target: str, out: Path | None, seeds: int | None, variant: str | None, report: Report
) -> Iterator[tuple[str, dict[str, Any], Path]]:
    """Run the figures meant by `target` (see `figures_of`) one by one; yields each when its CSV and summary are there.

    Where only one variant is asked for, what the files hold of the others stays.
    """
    recipe, _ = recipes(target.partition("/")[0])
    variants = recipe.get("variants", VARIANTS)
    if variant is not None and variant not in variants:
        raise ConfigError(f"variant={variant} is not allowed; allowed: {', '.join(variants)}")
    studio = Studio(recipe, seeds, report)
    for name, figure, folder in figures_of(target, out):
        report(f"{name}: {figure['caption']}")
        folder.mkdir(parents=True, exist_ok=True)
        for chosen in figure.get("variants", variants):
            if variant not in (None, chosen):
                continue
            began = time.perf_counter()
            curves = studio.curves(figure, chosen, variants[chosen])
            rows = target_rows(curves, figure["target"]) if "target" in figure else curve_rows(curves)
            keep(folder / f"{name}.csv", chosen, rows)
            environment = {k: v for k, v in record.environment(0).items() if k != "seed"}
            made = {"minutes": round((time.perf_counter() - began) / 60, 2)} | environment
            summarise(folder / f"{name}.json", name, figure, chosen, made, [c.summary() for c in curves])
        yield name, figure, folder


def series_keys(
    recipe: dict[str, Any], figure: dict[str, Any], series: dict[str, Any], variant: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """A series' label and the keys of its runs; keys that its algorithm does not read are left out."""
    keys = recipe["base"] | recipe["sets"][figure["set"]] | figure["keys"] | series | variant.get("keys", {})
    unread = foreign(keys["algorithm"]) | {"label"}
    return keys["label"], {k: v for k, v in keys.items() if k not in unread}


class Studio:
    """Runs the series of one paper's figures; data sets, compiled programs and finished runs are kept."""

    def __init__(self, recipe: dict[str, Any], seeds: int | None, report: Report) -> None:
        self._recipe, self._seeds, self._report = recipe, seeds, report
        self._sets: dict[str, tuple[Dataset, Workshop]] = {}
        self._done: dict[str, list[Row]] = {}

    def curves(self, figure: dict[str, Any], variant: str, how: dict[str, Any]) -> list[Curve]:
        return [self._curve(figure, series, variant, how) for series in figure["series"]]

    def _curve(self, figure: dict[str, Any], series: dict[str, Any], variant: str, how: dict[str, Any]) -> Curve:
        recipe, which = self._recipe, figure["set"]
        label, keys = series_keys(recipe, figure, series, how)
        rounds = keys.get("rounds") or self._affordable(Config.of(keys), which)
        tried: dict[float, float] = {}
        if how.get("tune"):
            tried = self._tuned(which, keys | {"eval_every": rounds, "train_eval": True}, figure["tune"], label)
            keys["lr"] = min(tried, key=lambda lr: tried[lr])
        keys["eval_every"] = max(1, rounds // figure["points"])
        count = self._seeds or figure.get("seeds", recipe["seeds"])
        curve = Curve(
            variant, label, keys["lr"], [self._history(which, keys | {"seed": s}) for s in range(count)], tried
        )
        last = curve.summary()
        self._report(
            f"{variant}, {label}, lr {last['lr']:g}: K = {last['iteration']}, accuracy {last['accuracy']:.4f} "
            f"± {last['accuracy_std']:.4f}"
        )
        return curve

    def _affordable(self, config: Config, which: str) -> int:
        """The rounds within the budget."""
        with ready(config):
            return len(price(experiment(config, self._set(which)[0])))

    def _tuned(self, which: str, keys: dict[str, Any], rates: list[float], label: str) -> dict[float, float]:
        """The training loss at the end of each rate, its mean over seeds that no reported run uses."""
        tried = {}
        for lr in [keys["lr"], *rates]:
            runs = [self._history(which, keys | {"lr": lr, "seed": s}) for s in self._recipe["tuning_seeds"]]
            losses = [run[-1]["global_loss"] for run in runs]
            tried[lr] = math.inf if None in losses else sum(losses) / len(losses)  # None where it diverged
        best = min(tried, key=lambda lr: tried[lr])
        listed = ", ".join(f"{loss:.3f} at {lr:g}" for lr, loss in sorted(tried.items()))
        self._report(f"{label}: tuned to {best:g} (training loss {listed})")
        return tried

    def _set(self, which: str) -> tuple[Dataset, Workshop]:
        if which not in self._sets:
            self._sets[which] = load(self._recipe["sets"][which]["data"]), Workshop()
        return self._sets[which]

    def _history(self, which: str, keys: dict[str, Any]) -> list[Row]:
        """One run; its folder is not kept. Rows gain the client's load: what it has uploaded, in whole models."""
        dataset, workshop = self._set(which)
        known = json.dumps(keys, sort_keys=True)
        if known not in self._done:
            with tempfile.TemporaryDirectory(prefix="fedge-") as folder:
                result = run(keys, out=Path(folder) / "run", dataset=dataset, workshop=workshop)
            whole = result.config.clients * result.parameters * jnp.dtype(result.config.dtype).itemsize
            for row in result.history:
                sent = row["bytes"].get("client_to_edge", 0) + row["bytes"].get("client_to_cloud", 0)
                row["client_load"] = sent / whole
            self._done[known] = result.history
        return self._done[known]
