"""Make papers' figures from recipes: each series over several seeds, in variants such as printed and tuned.

A recipe file (`papers/NAME/recipes.toml`, see `recipe`) holds the keys; this holds the procedure, which is the same for
every paper: all series of a figure share data, initial model and sample order, seed by seed. A run two figures need is
made once.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import jax.numpy as jnp

from fedge.data import Dataset, load
from fedge.errors import ConfigError, unknown
from fedge.experiment.build import experiment, make_model
from fedge.experiment.config import Config
from fedge.runner.cache import ProgramCache
from fedge.runner.costs import Costs
from fedge.runner.environment import environment
from fedge.runner.prepare import ready
from fedge.runner.rows import Row
from fedge.studies.curve import Curve, lines_of_rounds, lines_of_targets, write_lines, write_summary
from fedge.studies.recipe import FigureRecipe, Keys, Recipe, read_recipe
from fedge.studies.sweep import histories

Report = Callable[[str], None]
FILE = "recipes.toml"
OWN = Path(__file__).parents[3] / "papers"  # of the checkout the package was installed from


def recipe_of(target: str) -> tuple[Recipe, Path, str]:
    """Find the recipe meant by a target, its folder, and the pattern of the figures that are wanted.

    A target is PAPER or PAPER/FIGURE, of fedge's own papers. One that begins with `.` or `/` is the folder of a user's
    recipe, as in ./mine or ./mine/fig1: a folder here never takes the place of one of fedge's papers by its name.
    """
    if target.startswith((".", "/")):
        folder = Path(target)
        home, wanted = (folder, "*") if (folder / FILE).exists() else (folder.parent, folder.name)
        if not (home / FILE).exists():
            raise ConfigError(f"{target} is no folder with a {FILE}, nor a figure of one")
    else:
        paper, _, wanted = target.partition("/")
        known = sorted(p.parent.name for p in OWN.glob(f"*/{FILE}"))
        if paper not in known:
            raise ConfigError(unknown("paper", paper, known) + f"; a recipe of your own is ./FOLDER with a {FILE}")
        home = OWN / paper
    return read_recipe(home / FILE), home, wanted or "*"


def figures_of(target: str, out: Path | None = None) -> list[tuple[str, FigureRecipe, Path]]:
    """Find the figures meant by `paper`, `paper/figure` or `paper/fig*`: name, recipe, folder for results."""
    return _figures_of(*recipe_of(target), out)


def _figures_of(recipe: Recipe, home: Path, wanted: str, out: Path | None) -> list[tuple[str, FigureRecipe, Path]]:
    chosen = [name for name in recipe.figures if fnmatchcase(name, wanted)]
    if not chosen:
        raise ConfigError(unknown(f"figure of {home.name}", wanted, recipe.figures))
    folder = out or home / "results"
    if out is None and folder.is_symlink():
        raise ConfigError(f"{folder} is a link, which may lead anywhere; say where results go with --out")
    return [(name, recipe.figures[name], folder) for name in chosen]


def reproduce(
    target: str, out: Path | None, seeds: int | None, variant: str | None, report: Report
) -> Iterator[tuple[str, FigureRecipe, Path]]:
    """Run the figures meant by `target` (see `recipe_of`) one by one; yield each when its CSV and summary are there.

    Where only one variant is asked for, what the files hold of the others stays.
    """
    recipe, home, wanted = recipe_of(target)
    if variant is not None and variant not in recipe.variants:
        raise ConfigError(f"variant={variant} is not allowed; allowed: {', '.join(recipe.variants)}")
    runs = PaperRuns(recipe, seeds, report)
    for name, figure, folder in _figures_of(recipe, home, wanted, out):
        report(f"{name}: {figure.caption}")
        folder.mkdir(parents=True, exist_ok=True)
        order = recipe.variants_of(figure)
        for chosen in order:
            if variant not in (None, chosen):
                continue
            began = time.perf_counter()
            curves = runs.curves(figure, chosen)
            lines = lines_of_rounds(curves) if figure.target is None else lines_of_targets(curves, figure.target)
            machine = {k: v for k, v in environment(0).items() if k != "seed"}
            made = {"minutes": round((time.perf_counter() - began) / 60, 2)} | machine
            heading = {"figure": name, "caption": figure.caption}
            write_lines(folder / f"{name}.csv", chosen, lines, order)
            write_summary(folder / f"{name}.json", heading, chosen, made, [c.summary() for c in curves], order)
        yield name, figure, folder


@dataclass
class PlannedCurve:
    """This plans one curve: it holds the keys of its runs, as far as they are known."""

    label: str
    keys: Keys
    rounds: int = 0
    trials: list[Keys] = field(default_factory=list)  # keys of the runs by which its rate is chosen
    tried: dict[float, float] = field(default_factory=dict)  # rate → training loss


class PaperRuns:
    """This makes the runs behind figures; data sets, programs and finished runs are kept for the next figure."""

    def __init__(self, recipe: Recipe, seeds: int | None, report: Report) -> None:
        self._recipe, self._seeds, self._report = recipe, seeds, report
        self._sets: dict[str, tuple[Dataset, ProgramCache]] = {}
        self._done: dict[str, list[Row]] = {}

    def curves(self, figure: FigureRecipe, variant: str) -> list[Curve]:
        """Make all runs of a figure; those that wait for no tuned rate are handed over at once (see `sweep`)."""
        planned = self._plan(figure, variant)
        count = self._seeds or figure.seeds or self._recipe.seeds
        curves: list[Curve] = []

        def report() -> None:
            """Tell of the curves whose runs are all there, as far as those before them are."""
            for plan in planned[len(curves) :]:
                runs = [self._done.get(_name(plan.keys | {"seed": s})) for s in range(count)]
                if None in runs:
                    return
                cells = Config.of(plan.keys).cells
                curve = Curve(variant, plan.label, plan.keys["lr"], cells, [r for r in runs if r], plan.tried)
                curves.append(curve)
                last = curve.summary()
                self._report(f"{variant}, {plan.label}, lr {last['lr']:g}: K = {last['iteration']}, "
                             f"accuracy {last['accuracy']:.4f} ± {last['accuracy_std']:.4f}")  # fmt: skip

        self._run(figure.set, [plan.keys | {"seed": s} for plan in planned for s in range(count)], report)
        return curves

    def _plan(self, figure: FigureRecipe, variant: str) -> list[PlannedCurve]:
        """Decide each curve's rounds, from its budget, and its rate, by trials where the variant tunes it."""
        how, planned = self._recipe.variants[variant], []
        for series in figure.series:
            keys = self._recipe.run_keys(figure, series, how)
            config = Config.of(keys)
            rounds = keys.get("rounds") or self._affordable(config, figure.set)
            planned.append(PlannedCurve(series.label, keys | {"lr": config.lr}, rounds))
        if how.tune:
            for plan in planned:
                plan.trials = self._trials(plan, [plan.keys["lr"], *figure.tune])
            self._run(figure.set, [keys for plan in planned for keys in plan.trials])
            for plan in planned:
                self._tune(plan)
        for plan in planned:
            plan.keys["eval_every"] = max(1, plan.rounds // figure.points)
        return planned

    def _affordable(self, config: Config, which: str) -> int:
        """Count the rounds within the budget."""
        with ready(config, config.devices):
            return Costs(experiment(config, self._set(which)[0])).last()

    def _trials(self, plan: PlannedCurve, rates: list[float]) -> list[Keys]:
        """Plan trials on seeds that no reported run uses, tested at the end only."""
        keys = plan.keys | {"eval_every": plan.rounds, "train_eval": True}
        return [keys | {"lr": lr, "seed": s} for lr in rates for s in self._recipe.tuning_seeds]

    def _tune(self, plan: PlannedCurve) -> None:
        """Go on with the rate that has the lowest training loss at the end, its mean over the seeds."""
        ends: dict[float, list[float]] = {}
        for keys in plan.trials:
            loss = self._done[_name(keys)][-1]["global_loss"]
            ends.setdefault(keys["lr"], []).append(math.inf if loss is None else loss)  # None where it diverged
        plan.tried = tried = {lr: sum(losses) / len(losses) for lr, losses in ends.items()}
        plan.keys["lr"] = best = min(tried, key=lambda lr: tried[lr])
        listed = ", ".join(f"{loss:.3f} at {lr:g}" for lr, loss in sorted(tried.items()))
        self._report(f"{plan.label}: tuned to {best:g} (training loss {listed})")

    def _set(self, which: str) -> tuple[Dataset, ProgramCache]:
        if which not in self._sets:
            self._sets[which] = load(self._recipe.sets[which]["data"]), ProgramCache()
        return self._sets[which]

    def _run(self, which: str, wanted: list[Keys], after: Callable[[], None] = lambda: None) -> None:
        """Make the runs that were not made yet, with a call after each.

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


def _name(keys: Keys) -> str:
    return json.dumps(keys, sort_keys=True)
