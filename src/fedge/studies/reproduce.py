"""Papers' figures as recipes: each series over several seeds, in variants such as printed and tuned.

A recipe file (`papers/NAME/recipes.toml`) holds the keys; this holds the procedure, which is the same for every paper:
all series of a figure share data, initial model and sample order, seed by seed. A run two figures need is made once.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from fedge.data import Dataset, load
from fedge.errors import ConfigError, unknown
from fedge.experiment.build import experiment, make_model
from fedge.experiment.checks import foreign
from fedge.experiment.config import Config
from fedge.experiment.files import read_toml
from fedge.runner import record
from fedge.runner.cache import ProgramCache
from fedge.runner.costs import Costs
from fedge.runner.prepare import ready
from fedge.runner.record import Row
from fedge.studies.curve import Curve, curve_rows, keep, summarise, target_rows
from fedge.studies.sweep import histories

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


@dataclass
class Series:
    """One curve to be: its runs' keys, as far as they are known."""

    label: str
    keys: dict[str, Any]
    rounds: int = 0
    trials: list[dict[str, Any]] = field(default_factory=list)  # keys of the runs by which its rate is chosen
    tried: dict[float, float] = field(default_factory=dict)  # rate → training loss


class Studio:
    """Runs the series of one paper's figures; data sets, compiled programs and finished runs are kept."""

    def __init__(self, recipe: dict[str, Any], seeds: int | None, report: Report) -> None:
        self._recipe, self._seeds, self._report = recipe, seeds, report
        self._sets: dict[str, tuple[Dataset, ProgramCache]] = {}
        self._done: dict[str, list[Row]] = {}

    def curves(self, figure: dict[str, Any], variant: str, how: dict[str, Any]) -> list[Curve]:
        """All runs of a figure that do not wait for a tuned rate are handed over at once: see `together`."""
        which, points = figure["set"], figure["points"]
        planned = [Series(*series_keys(self._recipe, figure, series, how)) for series in figure["series"]]
        for series in planned:
            series.rounds = series.keys.get("rounds") or self._affordable(Config.of(series.keys), which)
        if how.get("tune"):
            for series in planned:
                series.trials = self._trials(series, [series.keys["lr"], *figure["tune"]])
            self._run(which, [keys for series in planned for keys in series.trials])
            for series in planned:
                self._tune(series)
        count = self._seeds or figure.get("seeds", self._recipe["seeds"])
        for series in planned:
            series.keys["eval_every"] = max(1, series.rounds // points)
        curves: list[Curve] = []

        def report() -> None:
            """The curves whose runs are all there, as far as those before them are."""
            for series in planned[len(curves) :]:
                runs = [self._done.get(_name(series.keys | {"seed": s})) for s in range(count)]
                if None in runs:
                    return
                curve = Curve(variant, series.label, series.keys["lr"], [r for r in runs if r], series.tried)
                curves.append(curve)
                last = curve.summary()
                self._report(f"{variant}, {series.label}, lr {last['lr']:g}: K = {last['iteration']}, "
                             f"accuracy {last['accuracy']:.4f} ± {last['accuracy_std']:.4f}")  # fmt: skip

        self._run(which, [series.keys | {"seed": s} for series in planned for s in range(count)], report)
        return curves

    def _affordable(self, config: Config, which: str) -> int:
        """The rounds within the budget."""
        with ready(config, config.devices):
            return Costs(experiment(config, self._set(which)[0])).last()

    def _trials(self, series: Series, rates: list[float]) -> list[dict[str, Any]]:
        """On seeds that no reported run uses, tested at the end only."""
        keys = series.keys | {"eval_every": series.rounds, "train_eval": True}
        return [keys | {"lr": lr, "seed": s} for lr in rates for s in self._recipe["tuning_seeds"]]

    def _tune(self, series: Series) -> None:
        """Go on with the rate that has the lowest training loss at the end, its mean over the seeds."""
        ends: dict[float, list[float]] = {}
        for keys in series.trials:
            loss = self._done[_name(keys)][-1]["global_loss"]
            ends.setdefault(keys["lr"], []).append(math.inf if loss is None else loss)  # None where it diverged
        series.tried = tried = {lr: sum(losses) / len(losses) for lr, losses in ends.items()}
        series.keys["lr"] = best = min(tried, key=lambda lr: tried[lr])
        listed = ", ".join(f"{loss:.3f} at {lr:g}" for lr, loss in sorted(tried.items()))
        self._report(f"{series.label}: tuned to {best:g} (training loss {listed})")

    def _set(self, which: str) -> tuple[Dataset, ProgramCache]:
        if which not in self._sets:
            self._sets[which] = load(self._recipe["sets"][which]["data"]), ProgramCache()
        return self._sets[which]

    def _run(self, which: str, wanted: list[dict[str, Any]], after: Callable[[], None] = lambda: None) -> None:
        """Runs that were not made yet, with a call after each.

        Rows gain the client's load: what it has uploaded, in whole models.
        """
        dataset, cache = self._set(which)
        missing = {_name(keys): keys for keys in wanted if _name(keys) not in self._done}
        configs = [Config.of(keys) for keys in missing.values()]
        names = list(missing)
        for place, rows in histories(configs, dataset, cache) if configs else ():
            config = configs[place]
            model = make_model(config, dataset.shape, dataset.classes)
            whole = config.clients * model.parameters * jnp.dtype(config.dtype).itemsize
            for row in rows:
                sent = row["bytes"].get("client_to_edge", 0) + row["bytes"].get("client_to_cloud", 0)
                row["client_load"] = sent / whole
            self._done[names[place]] = rows
            after()
        after()


def _name(keys: dict[str, Any]) -> str:
    return json.dumps(keys, sort_keys=True)
