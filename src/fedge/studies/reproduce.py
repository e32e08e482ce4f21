"""Make papers' figures from recipes: each series over several seeds, in variants such as printed and tuned.

A recipe file (`papers/NAME/recipes.toml`, see `recipe`) holds the keys; this holds the procedure, which is the same for
every paper: all series of a figure share data, initial model and sample order, seed by seed. A figure may show the runs
of another one, against other axes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from fedge.algorithms import algorithm
from fedge.data import Dataset, load
from fedge.errors import ConfigError, unknown
from fedge.experiment.build import experiment
from fedge.experiment.config import Config
from fedge.plugins import is_name, source_digest
from fedge.runner.cache import ProgramCache
from fedge.runner.costs import Costs
from fedge.runner.environment import environment
from fedge.runner.prepare import ready
from fedge.runner.rows import Row
from fedge.studies import tables
from fedge.studies.curve import Curve, Tried, read_curves, write_curves, write_file, write_summary
from fedge.studies.kept import KeptRuns
from fedge.studies.papers import OWN, results_of, stored_of
from fedge.studies.recipe import FigureRecipe, Keys, Recipe, read_recipe
from fedge.studies.stacked_runs import histories

Report = Callable[[str], None]
FILE = "recipes.toml"


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


@dataclass(frozen=True)
class Place:
    """This is where a figure's files lie: its runs may be another figure's."""

    recipe: Recipe
    name: str
    folder: Path
    readme: Path | None  # that takes the figure's text, if it has a place for it
    stored: Path | None = None  # where curves are that came with an installed fedge

    @property
    def figure(self) -> FigureRecipe:
        return self.recipe.figures[self.name]

    @property
    def runs(self) -> str:
        return self.recipe.runs_name(self.name)

    @property
    def table(self) -> Path:
        return self.folder / f"{self.runs}.csv"

    @property
    def source(self) -> Path:
        """Return the table that the curves are read from: one's own, or else the one that came with fedge."""
        stored = self.table if self.stored is None else self.stored / self.table.name
        return stored if stored.exists() and not self.table.exists() else self.table

    def curves(self) -> list[Curve]:
        """Read the curves of the variants that this figure shows."""
        shown = self.recipe.variants_of(self.figure)
        return [c for c in read_curves(self.source) if c.variant in shown]


def figures_of(target: str, out: Path | None = None) -> list[Place]:
    """Find the figures meant by `paper`, `paper/figure` or `paper/fig*`, and where their files lie."""
    return _figures_of(*recipe_of(target), out)


def _figures_of(recipe: Recipe, home: Path, wanted: str, out: Path | None) -> list[Place]:
    chosen = [name for name in recipe.figures if fnmatchcase(name, wanted)]
    if not chosen:
        raise ConfigError(unknown(f"figure of {home.name}", wanted, recipe.figures))
    folder, readme, stored = out or results_of(home), home / "README.md", stored_of(home)
    if out is None and folder.is_symlink():
        raise ConfigError(f"{folder} is a link, which may lead anywhere; say where results go with --out")
    if out is not None:  # nothing of elsewhere is read or written then
        return [Place(recipe, name, folder, None) for name in chosen]
    return [Place(recipe, name, folder, readme if readme.exists() else None, stored) for name in chosen]


def reproduce(target: str, out: Path | None, seeds: int | None, variant: str | None, report: Report) -> Iterator[Place]:
    """Run the figures meant by `target` (see `recipe_of`) one by one; yield each when its CSV and summary are there.

    Where only one variant is asked for, what the files hold of the others stays. Whatever was there when a reproduction
    was stopped, the same command goes on from the runs that had finished, and ends with the same files.
    """
    recipe, home, wanted = recipe_of(target)
    if variant is not None and variant not in recipe.variants:
        raise ConfigError(f"variant={variant} is not allowed; allowed: {', '.join(recipe.variants)}")
    runs, made = PaperRuns(recipe, seeds, report), dict[str, KeptRuns]()
    for place in _figures_of(recipe, home, wanted, out):
        if place.runs not in made:
            made[place.runs] = _make(runs, replace(place, name=place.runs), variant, report)
        yield place
    for kept in made.values():
        kept.remove()


def _make(runs: PaperRuns, place: Place, variant: str | None, report: Report) -> KeptRuns:
    """Make a figure's runs, in one variant or all, and write what came of them."""
    report(f"{place.name}: {place.figure.caption}")
    place.folder.mkdir(parents=True, exist_ok=True)
    order = list(place.recipe.variants)
    chosen = [v for v in place.recipe.variants_of(place.figure) if variant in (None, v)]
    machine = _machine(place)
    kept = KeptRuns(place.table.with_suffix(".runs.jsonl"), machine | {"own": _own_algorithms(place.figure)})
    if kept.rows:
        report(f"{len(kept.rows)} finished runs are there from before")
    for name, curves in runs.curves(place.figure, chosen, kept).items():
        how = {"minutes": round(kept.seconds / 60, 2), "variants_in_these_minutes": chosen} | machine
        heading = {"figure": place.name, "caption": place.figure.caption}
        write_curves(place.table, name, curves, order)
        write_summary(place.table.with_suffix(".json"), heading, name, how, [c.summary() for c in curves], order)
    return kept


def _machine(place: Place) -> dict[str, Any]:
    """Say what makes the runs; JAX is started as they need it."""
    how = next(iter(place.recipe.variants.values()))
    config = Config.of(place.recipe.run_keys(place.figure, place.figure.series[0], how))
    with ready(config, config.devices):
        return {key: value for key, value in environment(0).items() if key != "seed"}


def _own_algorithms(figure: FigureRecipe) -> dict[str, str]:
    """Make a digest of each algorithm of the user's own."""
    own = {series.keys["algorithm"] for series in figure.series if is_name(str(series.keys.get("algorithm")))}
    return {name: source_digest(algorithm(name).factory) for name in sorted(own)}


def tell(place: Place) -> str:
    """Write a figure's tables and verdicts beside its curves and into its README, and return them."""
    curves = place.curves()
    text = tables.text_of(place.recipe, place.figure, curves)
    place.folder.mkdir(parents=True, exist_ok=True)
    write_file(place.folder / f"{place.name}.md", f"{text}\n".encode())
    if place.readme is not None:
        tables.put(place.readme, place.name, tables.text_of(place.recipe, place.figure, curves, short=True))
    return text


@dataclass
class PlannedCurve:
    """This plans one curve: it holds the keys of its runs, as far as they are known."""

    label: str
    keys: Keys
    rounds: int = 0
    trials: list[Keys] = field(default_factory=list)  # keys of the runs by which its rate is chosen
    tried: Tried = field(default_factory=dict)


class PaperRuns:
    """This makes the runs behind figures; data sets, programs and finished runs are kept for the next figure."""

    def __init__(self, recipe: Recipe, seeds: int | None, report: Report) -> None:
        self._recipe, self._seeds, self._report = recipe, seeds, report
        self._sets: dict[str, tuple[Dataset, ProgramCache]] = {}
        self._done: dict[str, list[Row]] = {}

    def curves(self, figure: FigureRecipe, variants: list[str], kept: KeptRuns) -> dict[str, list[Curve]]:
        """Make all runs of a figure: those by which rates are chosen, then the others; runs that wait for nothing are
        handed over at once, since those of one shape may advance together (see `stacked_runs`)."""
        self._done |= kept.rows
        planned = {variant: self._plan(figure, variant) for variant in variants}
        every = [plan for plans in planned.values() for plan in plans]
        self._run(figure.set, [keys for plan in every for keys in plan.trials], kept)
        for plan in every:
            self._tune(plan)
            plan.keys["eval_every"] = max(1, plan.rounds // figure.points)
        seeds = range(self._seeds or figure.seeds or self._recipe.seeds)
        waiting = [(variant, plan) for variant, plans in planned.items() for plan in plans]
        curves: dict[str, list[Curve]] = {variant: [] for variant in variants}

        def report() -> None:
            """Tell of the curves whose runs are all there, as far as those before them are."""
            while waiting:
                variant, plan = waiting[0]
                rows = {s: self._done.get(_name(plan.keys | {"seed": s})) for s in seeds}
                if None in rows.values():
                    return
                cells, there = Config.of(plan.keys).cells, {s: r for s, r in rows.items() if r}
                curve = Curve.of(variant, plan.label, cells, plan.keys["lr"], there, plan.tried)
                curves[variant].append(curve)
                waiting.pop(0)
                last = {name: column[:, -1] for name, column in curve.columns.items()}
                self._report(f"{variant}, {plan.label}, lr {curve.lr:g}: K = {last['iteration'][0]:.0f}, "
                             f"accuracy {tables.spread('accuracy', last['accuracy'])}")  # fmt: skip

        self._run(figure.set, [plan.keys | {"seed": s} for plan in every for s in seeds], kept, report)
        return curves

    def _plan(self, figure: FigureRecipe, variant: str) -> list[PlannedCurve]:
        """Decide each curve's rounds, from its budget, and the trials by which the variant tunes its rate."""
        how, planned = self._recipe.variants[variant], []
        for series in figure.series:
            keys = self._recipe.run_keys(figure, series, how)
            config = Config.of(keys)
            rounds = keys.get("rounds") or self._affordable(config, figure.set)
            plan = PlannedCurve(series.label, keys | {"lr": config.lr}, rounds)
            if how.tune:
                seeds = figure.tuning_seeds or self._recipe.tuning_seeds
                plan.trials = self._trials(plan, sorted({config.lr, *figure.tune}), seeds)
            planned.append(plan)
        return planned

    def _affordable(self, config: Config, which: str) -> int:
        """Count the rounds within the budget."""
        with ready(config, config.devices):
            return Costs(experiment(config, self._set(which)[0])).last()

    def _trials(self, plan: PlannedCurve, rates: list[float], seeds: list[int]) -> list[Keys]:
        """Plan trials on seeds that no reported run uses, tested at the end only."""
        keys = plan.keys | {"eval_every": plan.rounds, "train_eval": True}
        return [keys | {"lr": lr, "seed": s} for lr in rates for s in seeds]

    def _tune(self, plan: PlannedCurve) -> None:
        """Go on with the rate that has the lowest training loss at the end, its mean over the seeds."""
        for keys in plan.trials:
            loss = self._done[_name(keys)][-1]["global_loss"]
            plan.tried.setdefault(keys["lr"], {})[keys["seed"]] = math.inf if loss is None else loss  # None: diverged
        if plan.tried:
            means = {lr: sum(losses.values()) / len(losses) for lr, losses in plan.tried.items()}
            plan.keys["lr"] = best = min(means, key=lambda lr: means[lr])
            listed = ", ".join(f"{loss:.3f} at {lr:g}" for lr, loss in sorted(means.items()))
            self._report(f"{plan.label}: tuned to {best:g} (training loss {listed})")

    def _set(self, which: str) -> tuple[Dataset, ProgramCache]:
        if which not in self._sets:
            self._sets[which] = load(self._recipe.sets[which]["data"]), ProgramCache()
        return self._sets[which]

    def _run(self, which: str, wanted: list[Keys], kept: KeptRuns, after: Callable[[], None] = lambda: None) -> None:
        """Make the runs that were not made yet, with a call after each."""
        dataset, cache = self._set(which)
        missing = {_name(keys): keys for keys in wanted if _name(keys) not in self._done}
        configs = [Config.of(keys) for keys in missing.values()]
        names = list(missing)
        for place, rows in histories(configs, dataset, cache) if configs else ():
            facts = _facts(configs[place], dataset)
            self._done[names[place]] = rows = [row | facts(row) for row in rows]
            kept.add(names[place], rows)
            after()
        after()


def _facts(config: Config, dataset: Dataset) -> Callable[[Row], dict[str, float]]:
    """Tell what rows gain: the loads of a client, an edge and the cloud, which are what they have sent or received in
    whole models (means over clients and edges), and ζ where edges gossip."""
    made = experiment(config, dataset)
    whole = made.model.parameters * jnp.dtype(config.dtype).itemsize
    gossip = made.job.algorithm.gossip
    zeta = {} if gossip is None else {"zeta": gossip.zeta}

    def facts(row: Row) -> dict[str, float]:
        up = row["bytes"].get("client_to_edge", 0)
        direct = row["bytes"].get("client_to_cloud", 0)
        loads = {
            "client_load": (up + direct) / whole / config.clients,
            "edge_load": up / whole / config.cells,
            "cloud_load": (row["bytes"].get("edge_to_cloud", 0) + direct) / whole,
        }
        return loads | zeta

    return facts


def _name(keys: Keys) -> str:
    return json.dumps(keys, sort_keys=True)
