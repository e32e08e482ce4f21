"""This says what may stand in a paper's `recipes.toml`: it is typed, and refused in one sentence where it cannot be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from fedge.algorithms import ALGORITHMS
from fedge.data import DATASETS
from fedge.errors import ConfigError, suggestion, unknown
from fedge.experiment.checks import foreign
from fedge.experiment.config import Config
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
        if key not in Config.model_fields:
            raise ValueError(f"unknown key '{key}' of a run{suggestion(key, Config.model_fields)}")
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


class FigureRecipe(_Part):
    """This is a figure: what is drawn against what, and its series."""

    caption: str
    set: str
    x: Literal["iteration", "round", "simulated_seconds", "bytes", "client_load", "cells"]
    y: Literal["accuracy", "global_loss", "load"]
    points: int = Field(ge=1)  # evaluations of a run
    series: list[SeriesRecipe] = Field(min_length=1)
    target: float | None = Field(None, gt=0, le=1)  # accuracy to which the client load is counted
    tune: list[Annotated[float, Field(gt=0)]] = []  # rates to try beside the set's own
    seeds: int | None = Field(None, ge=1, le=1000)
    variants: list[str] | None = None
    keys: RunKeys = {}


class Variant(_Part):
    """A variant is a way to run every figure: with other keys, or with a rate tuned for each series."""

    keys: RunKeys = {}
    tune: bool = False


class Recipe(_Part):
    """A recipe holds a paper's figures, and the keys that their runs have in common."""

    title: str = ""
    seeds: int = Field(ge=1, le=1000)
    tuning_seeds: list[Annotated[int, Field(ge=0, lt=2**32)]] = []
    variants: dict[Name, Variant] = {"printed": Variant(), "tuned": Variant(tune=True)}
    base: RunKeys = {}
    sets: dict[str, RunKeys]
    figures: dict[Name, FigureRecipe]

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
            _check(recipe, figure)
        except ConfigError as problem:
            raise ConfigError(f"{path}: figure {name}: {problem}") from None
    return recipe


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
        if variant.tune and not (figure.tune and recipe.tuning_seeds):
            raise ConfigError(f"variant {chosen} tunes the rate; give tune and tuning_seeds, or name other variants")
        for series in figure.series:
            if "data" in recipe.base | figure.keys | series.keys | variant.keys:
                raise ConfigError("data is the set's own key; leave it out elsewhere")
            try:
                config = Config.of(recipe.run_keys(figure, series, variant))
            except ConfigError as problem:
                raise ConfigError(f"series '{series.label}': {problem}") from None
            if (variant.tune or figure.y == "global_loss") and not config.train_eval:
                raise ConfigError(f"series '{series.label}': the training loss is needed; give train_eval = true")
            line = (chosen, series.label, config.cells if figure.x == "cells" else None)
            if line in seen:
                raise ConfigError(f"two series are called '{series.label}'; give each its own label")
            seen.add(line)


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
