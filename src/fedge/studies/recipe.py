"""This says what may stand in a paper's `recipes.toml`: it is typed, and refused in one sentence where it cannot be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from fedge.algorithms import ALGORITHMS
from fedge.data import ASSIGNMENTS, DATASETS, PARTITIONS
from fedge.data.own_data import is_own
from fedge.errors import ConfigError, suggestion, unknown
from fedge.experiment.config import Config, all_fields, foreign
from fedge.experiment.files import read_toml

Keys = dict[str, Any]  # of a run, as on the command line


def _name(text: str) -> str:
    """A name becomes part of a file's: it cannot be hidden, empty or lead elsewhere."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", text):
        raise ValueError("a name has letters, digits, _, - and . only, 100 at most, and begins with a letter or digit")
    return text


def _keys(keys: Keys) -> Keys:
    for key in keys:
        if key in ("seed", "eval_every"):
            raise ValueError(f"{key} is not for a recipe: it follows from {'seeds' if key == 'seed' else 'points'}")
        if key == "target":
            raise ValueError("target is not for a recipe: the curves of a figure are as long as each other")
        if key not in (known := all_fields()):
            raise ValueError(f"unknown key '{key}' of a run{suggestion(key, known)}")
    return keys


Name = Annotated[str, AfterValidator(_name)]
RunKeys = Annotated[Keys, AfterValidator(_keys)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class SeriesRecipe(_Part):
    """A series is one line of a figure: its label, and what sets its runs apart."""

    label: str = Field(min_length=1)
    keys: RunKeys = {}

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, values: Any) -> Any:
        """In a file the label stands among the keys."""
        if not isinstance(values, dict):
            return values
        return {"keys": {k: v for k, v in values.items() if k != "label"}} | {
            k: v for k, v in values.items() if k == "label"
        }


Column = Literal["accuracy", "global_loss", "objective", "edge_accuracy", "load"]
Axis = Literal["iteration", "round", "simulated_seconds", "bytes", "client_load"]


class Claim(_Part):
    """A claim is a sentence of a paper, and what of a figure's curves decides it (see `verdict` for the rule)."""

    says: str = Field(min_length=1)
    pairs: list[tuple[str, str]] = []  # two series each: the first is better than the second
    within: float | None = Field(None, gt=0)  # or rather: the two of a pair differ by less than this
    series: list[str] = []  # series that are measured by themselves:
    paper: float | None = None  # they end with this value
    levels_off: float | None = Field(None, gt=0)  # they level off about here on the figure's axis
    column: Column | None = None  # unless given, what the figure shows
    at: list[float] = []  # places on the figure's axis; unless given, the end

    @model_validator(mode="before")
    @classmethod
    def _pairs(cls, values: Any) -> Any:
        """A pair is a list in TOML, which knows no tuples."""
        if isinstance(values, dict) and isinstance(pairs := values.get("pairs"), list):
            return values | {"pairs": [tuple(pair) if isinstance(pair, list) else pair for pair in pairs]}
        return values

    @model_validator(mode="after")
    def _one_kind(self) -> Claim:
        alone = self.paper is not None or self.levels_off is not None
        if bool(self.pairs) == bool(self.series) or bool(self.series) != alone or (self.within and not self.pairs):
            raise ValueError("a claim has pairs, with within or not, or series with paper or levels_off")
        return self


class FigureRecipe(_Part):
    """This is a figure: what is drawn against what, its series, and what the paper claims of it."""

    caption: str
    x: Literal["iteration", "round", "simulated_seconds", "bytes", "client_load", "cells"]
    y: Literal["accuracy", "global_loss", "objective", "edge_accuracy", "load"]
    runs_of: str | None = None  # another figure, whose runs this one shows; all that follows is then that one's
    set: str = ""
    points: int = Field(0, ge=0)  # evaluations of a run
    series: list[SeriesRecipe] = []
    target: float | None = Field(None, gt=0, le=1)  # accuracy to which the client load is counted
    tune: list[Annotated[float, Field(gt=0)]] = []  # rates to try beside the set's own
    tuning_seeds: list[Annotated[int, Field(ge=0, lt=2**32)]] = []  # unless given, the recipe's
    seeds: int | None = Field(None, ge=1, le=1000)
    variants: list[str] | None = None
    keys: RunKeys = {}
    claims: list[Claim] = []
    table_at: list[float] = []  # places on the axis that the table has a column for; unless given, the end

    @model_validator(mode="after")
    def _runs(self) -> FigureRecipe:
        own = {"set", "points", "series", "tune", "tuning_seeds", "seeds", "keys"}
        if self.runs_of is not None:
            if given := sorted(own & self.model_fields_set):
                raise ValueError(f"{given[0]} is that of the figure whose runs it shows; leave it out, or runs_of")
        elif missing := next((key for key in ("set", "points", "series") if not getattr(self, key)), None):
            raise ValueError(f"{missing} is missing")
        return self


class Variant(_Part):
    """A variant is a way to run every figure: with other keys, or with a rate tuned for each series."""

    keys: RunKeys = {}
    tune: bool = False
    title: str = ""  # its name in tables and pictures
    aside: bool = False  # a README leaves its series to the results and has its verdicts only


class Recipe(_Part):
    """A recipe holds a paper's figures, and the keys that their runs have in common."""

    title: str = ""
    seeds: int = Field(ge=1, le=1000)
    tuning_seeds: list[Annotated[int, Field(ge=0, lt=2**32)]] = []
    variants: dict[Name, Variant] = {"printed": Variant(), "tuned": Variant(tune=True)}
    base: RunKeys = {}
    sets: dict[str, RunKeys]
    figures: dict[Name, FigureRecipe]

    def runs_name(self, name: str) -> str:
        """Name the figure whose runs this one shows: itself, or another."""
        return self.figures[name].runs_of or name

    def titles(self) -> dict[str, str]:
        """Name each variant in words."""
        return {name: variant.title or name for name, variant in self.variants.items()}

    def variants_of(self, figure: FigureRecipe) -> list[str]:
        return list(self.variants) if figure.variants is None else figure.variants

    def run_keys(self, figure: FigureRecipe, series: SeriesRecipe, variant: Variant) -> Keys:
        """Return the keys of a series' runs; those that its algorithm does not read are left out."""
        keys = self.base | self.sets[figure.set] | figure.keys | series.keys | variant.keys
        name = str(keys.get("algorithm")).lower()
        unread = foreign(name) if name in ALGORITHMS else set()
        return {k: v for k, v in keys.items() if k not in unread}


def read_recipe(path: Path) -> Recipe:
    """Read a recipe file and check every run of every figure, as far as that can be done without data."""
    try:
        recipe = Recipe(**read_toml(path))
    except ValidationError as problem:
        raise ConfigError(f"{path}: {_sentence(problem.errors()[0])}") from None
    for name, keys in recipe.sets.items():
        if "data" not in keys:
            raise ConfigError(f"{path}: set {name}: data is missing; give one of: {', '.join(DATASETS)}")
    for name, figure in recipe.figures.items():
        try:
            recipe.figures[name] = figure = _with_runs(recipe, figure)
            _check(recipe, figure)
        except ConfigError as problem:
            raise ConfigError(f"{path}: figure {name}: {problem}") from None
    return recipe


def _with_runs(recipe: Recipe, figure: FigureRecipe) -> FigureRecipe:
    """Give a figure that shows another's runs all that is said of them there."""
    if figure.runs_of is None:
        return figure
    if figure.runs_of not in recipe.figures:
        raise ConfigError(unknown("figure", figure.runs_of, recipe.figures))
    other = recipe.figures[figure.runs_of]
    if other.runs_of is not None:
        raise ConfigError(f"{figure.runs_of} shows the runs of {other.runs_of} itself; name that one")
    theirs = ["set", "points", "series", "tune", "tuning_seeds", "seeds", "keys"]
    theirs += [] if figure.variants else ["variants"]
    return figure.model_copy(update={key: getattr(other, key) for key in theirs})


def _check(recipe: Recipe, figure: FigureRecipe) -> None:
    """Refuse combinations that cannot be."""
    if figure.set not in recipe.sets:
        raise ConfigError(unknown("set", figure.set, recipe.sets))
    if (figure.target is not None) != (figure.x == "cells") or (figure.x == "cells") != (figure.y == "load"):
        raise ConfigError("target, x=cells and y=load belong together; give all of them or none")
    seen = set()
    for chosen in recipe.variants_of(figure):
        if chosen not in recipe.variants:
            raise ConfigError(unknown("variant", chosen, recipe.variants))
        variant = recipe.variants[chosen]
        if variant.tune and not (figure.tune and (figure.tuning_seeds or recipe.tuning_seeds)):
            raise ConfigError(f"variant {chosen} tunes the rate; give tune and tuning_seeds, or name other variants")
        for series in figure.series:
            if "data" in recipe.base | figure.keys | series.keys | variant.keys:
                raise ConfigError("data is the set's own key; leave it out elsewhere")
            try:
                config = Config.of(recipe.run_keys(figure, series, variant))
            except ConfigError as problem:
                raise ConfigError(f"series '{series.label}': {problem}") from None
            if is_own(config.data) or config.partition not in PARTITIONS or config.assign not in ASSIGNMENTS:
                raise ConfigError(f"series '{series.label}': a figure takes known data, partitions and cells by name; "
                                  "use `fedge run` for your own")  # fmt: skip
            if (variant.tune or figure.y == "global_loss") and not config.train_eval:
                raise ConfigError(f"series '{series.label}': the training loss is needed; give train_eval = true")
            line = (chosen, series.label, config.cells)
            if line in seen:
                raise ConfigError(f"two series are called '{series.label}'; give each its own label")
            seen.add(line)
    labels = [label for variant, label, _ in seen if variant == recipe.variants_of(figure)[0]]
    several = {label for label in labels if labels.count(label) > 1}
    called = {f"{label}, N = {cells}" if label in several else label for _, label, cells in seen}
    for claim in figure.claims:
        for name in [*claim.series, *(name for pair in claim.pairs for name in pair)]:
            if name not in called:
                raise ConfigError(f"claim '{claim.says}': {unknown('series', name, called)}")
        if (claim.column == "load" or figure.y == "load") and (claim.at or claim.levels_off or not figure.target):
            raise ConfigError(f"claim '{claim.says}': a load to a target has no place on an axis")


def _sentence(error: ErrorDetails) -> str:
    """Say where in the file something is wrong, and what."""
    parts, place = {"sets": "set", "figures": "figure", "variants": "variant"}, list(error["loc"])
    fields, where = Recipe.model_fields, ""
    if len(place) > 1 and place[0] in parts:
        name = str(place[1])[:100]
        where = f"{parts[str(place[0])]} {name if name.isprintable() else repr(name)}: "
        fields = FigureRecipe.model_fields if place[0] == "figures" else Variant.model_fields
        place = place[2:]
        if len(place) > 1 and place[0] == "series":
            where, place = f"{where}series {int(place[1]) + 1}: ", place[2:]
    key = ".".join(str(p) for p in place if p != "[key]")
    if error["type"] == "missing":
        return f"{where}{key} is missing"
    if error["type"] == "extra_forbidden":
        return f"{where}unknown key '{key}'{suggestion(key, fields)}"
    if error["type"] == "value_error":
        return where + error["msg"].removeprefix("Value error, ")
    given = f"{key}={str(error['input'])[:60]} is" if key else "it is"
    return f"{where}{given} not allowed: {error['msg'][0].lower()}{error['msg'][1:]}"
