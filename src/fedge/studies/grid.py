"""A grid is every combination of the values given for some keys, for each algorithm that reads them, over seeds.

lr=0.02,0.05 local_steps=5,10 --seeds 3        2 × 2 settings of an algorithm, each run with seeds 0, 1 and 2
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from fedge.algorithms import ALGORITHMS, algorithm
from fedge.errors import ConfigError, brief
from fedge.experiment.config import Config, foreign, require_known
from fedge.models import own as own_models
from fedge.runner.cache import PER_RUN
from fedge.runner.identity import canonical
from fedge.studies.stored_plan import Plan

MOST = 1_000  # runs of a grid, unless somebody says that more are meant
LETTERS = 80  # of a folder's name
LISTS = ("metrics",)  # keys whose one value is words with commas between
Axes = dict[str, list[Any]]  # key → the values that it takes


def make_plan(
    algorithms: Sequence[str], keys: Mapping[str, Any], seeds: int | Sequence[int] | None = None, *, many: bool = False
) -> Plan:
    """Return the keys of each run of a grid; every one is checked before the first starts."""
    names = list(dict.fromkeys(name.lower() if name.lower() in ALGORITHMS else name for name in algorithms))
    if not names:
        raise ConfigError("a sweep needs an algorithm; write it first, as in: fedge sweep hierfavg lr=0.02,0.05")
    if "algorithm" in keys:
        raise ConfigError("algorithm is not a key of a sweep; name the algorithms to sweep instead")
    for name in names:
        algorithm(name)
    for model in values_of("model", keys["model"]) if "model" in keys else ():
        own_models.keys_of(model)  # so that the keys it declares are known
    require_known(keys)
    grids = {name: _axes(name, names, keys, seeds) for name in names}
    count = sum(math.prod(len(values) for values in axes.values()) for axes in grids.values())
    if count > MOST and not many:
        raise ConfigError(f"this grid has {count:,} runs; allowed without --yes: {MOST:,}; add --yes if they are meant")
    plan: Plan = {}
    same: dict[str, str] = {}
    varied = [key for key in keys if any(len(axes.get(key, ())) > 1 for axes in grids.values())]
    for name, axes in grids.items():
        for values in product(*axes.values()):
            chosen = {"algorithm": name} | dict(zip(axes, values, strict=True))
            folder = _folder(chosen, varied, plan)
            resolved = canonical(Config.of(chosen).model_dump())
            if resolved in same:
                raise ConfigError(f"{folder} and {same[resolved]} would be one and the same run; leave one out")
            same[resolved], plan[folder] = folder, chosen
    return plan


def _axes(name: str, names: Sequence[str], keys: Mapping[str, Any], seeds: int | Sequence[int] | None) -> Axes:
    """List the values of each key that this algorithm is to be run with, the seed's last."""
    own = foreign(name)
    axes = {key: values_of(key, given) for key, given in keys.items() if key != "seed" and (
        key not in own or all(key in foreign(other) for other in names))}  # fmt: skip
    return axes | {"seed": _seeds(keys.get("seed"), seeds)}


def values_of(key: str, given: Any) -> list[Any]:
    """Return the values given for a key: a list's, or those between commas."""
    if isinstance(given, str) and "," in given and key not in LISTS:
        found: list[Any] = [part.strip() for part in given.split(",")]
    else:
        found = list(given) if isinstance(given, list | tuple) and key not in LISTS else [given]
    if not found or (len(found) > 1 and "" in found):
        raise ConfigError(f"{key}={brief(given)} has no value between two commas or at an end; leave that comma out")
    if any(isinstance(value, dict | list | tuple) for value in found) and key not in LISTS:
        raise ConfigError(f"{key}={brief(given)} is no list of plain values; give each value by itself")
    return list(dict.fromkeys(found)) if key not in LISTS else found


def _seeds(given: Any, seeds: int | Sequence[int] | None) -> list[Any]:
    """List the seeds: so many from the one that is given (or 0), or those that are given."""
    if seeds is None:
        return values_of("seed", 0 if given is None else given)
    if not isinstance(seeds, int):
        if given is not None:
            raise ConfigError("seed is given twice; use either seed=… or seeds")
        return values_of("seed", list(seeds))
    first = Config.of({"algorithm": "fedavg"} | ({} if given is None else {"seed": given})).seed
    if isinstance(seeds, bool) or not 1 <= seeds <= 10**6:
        raise ConfigError(f"seeds={seeds} is not allowed; allowed: an integer ≥ 1 and ≤ 1000000")
    return list(range(first, first + seeds))


def _folder(chosen: Mapping[str, Any], varied: Sequence[str], taken: Mapping[str, Any]) -> str:
    """Name the folder of a run by what sets it apart."""
    words = [str(chosen["algorithm"]), *(f"{key}={chosen[key]}" for key in varied if key in chosen and key != "seed")]
    plain = re.sub(r"[^\w.=+-]", "-", "_".join(words))[:LETTERS].lstrip(".")
    name, number = f"{plain}_seed={chosen['seed']}", 1
    while name in taken:
        number += 1
        name = f"{plain}_seed={chosen['seed']}-{number}"
    return name


def axes_of(plan: Plan) -> list[str]:
    """Name the keys by which the settings of a plan are told apart, the algorithm first; the seed is none of them."""
    keys = dict.fromkeys(key for chosen in plan.values() for key in chosen if key != "seed")
    return [key for key in keys if len({str(chosen.get(key)) for chosen in plan.values()}) > 1] or ["algorithm"]


def by_shape(plan: Plan) -> list[str]:
    """Put runs that share compiled programs next to each other, otherwise in the plan's order."""
    shapes = {name: Config.of(chosen).model_dump_json(exclude=PER_RUN) for name, chosen in plan.items()}
    order = list(dict.fromkeys(shapes.values()))
    return sorted(plan, key=lambda name: order.index(shapes[name]))
