"""The choices of a plan: which settings are possible, which of them are tried, and what lies next to one.

A key with one value is fixed; one with several is a choice among them; those in `axes` that nobody mentions are choices
too. Of more settings than are to be tried some are drawn, as many of each algorithm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from fedge.algorithms import ALGORITHMS, algorithm
from fedge.core.keys import Purpose, host_rng
from fedge.errors import ConfigError
from fedge.experiment.config import Config, declared_by, require_known
from fedge.runner.identity import canonical
from fedge.studies.grid import values_of

EVERY = 10  # iterations between tests, or one round where that is longer
RATES = {"sgd": (0.02, 0.05, 0.1, 0.2)}
OTHER_RATES = (0.0003, 0.001, 0.003, 0.01)  # of optimisers that scale steps themselves
Keys = dict[str, Any]


@dataclass(frozen=True)
class Choices:
    """These are the values of each key, for each algorithm; a setting is one value of each."""

    axes: dict[str, dict[str, tuple[Any, ...]]]  # algorithm → key → values in ascending order
    fixed: Keys

    @property
    def size(self) -> int:
        return sum(len(list(self.settings(name))) for name in self.axes)

    def settings(self, name: str) -> Iterable[Keys]:
        own = self.axes[name]
        for values in product(*own.values()):
            yield self.complete({"algorithm": name} | dict(zip(own, values, strict=True)))

    def complete(self, chosen: Keys) -> Keys:
        """Return all keys of a setting's run."""
        known = declared_by(chosen["algorithm"]).keys() | Config.model_fields.keys()
        keys = {key: value for key, value in self.fixed.items() if key in known} | chosen
        config = Config.of(keys)
        if "eval_every" not in keys:
            every = -(-EVERY // (config.local_steps * config.edge_rounds))
            keys["eval_every"] = min(every, config.rounds) if "rounds" in keys and config.rounds else every
        return keys

    def draw(self, seed: int) -> list[Keys]:
        """Return all settings in a random order in which algorithms take turns."""
        turns: list[list[Keys]] = []
        for number, name in enumerate(self.axes):
            own = list(self.settings(name))
            order = host_rng(seed, Purpose.PLAN, number).permutation(len(own))
            turns.append([own[n] for n in order])
        longest = max(map(len, turns), default=0)
        return [own[n] for n in range(longest) for own in turns if n < len(own)]

    def neighbours(self, chosen: Mapping[str, Any]) -> list[Keys]:
        """Return the settings that differ in one key, by one step of it."""
        own, found = self.axes[chosen["algorithm"]], []
        for key, values in own.items():
            place = values.index(chosen[key])
            for near in (place - 1, place + 1):
                if 0 <= near < len(values):
                    plain = {k: chosen[k] for k in ("algorithm", *own)}
                    found.append(self.complete(plain | {key: values[near]}))
        return found


def make_choices(asked: Mapping[str, Any], stages: Sequence[str], cells: int, *, linked: bool) -> Choices:
    """Find out what may be chosen; `linked` says that a network says which edges have links."""
    require_known(asked)
    given = {key: values_of(key, value) for key, value in asked.items()}
    asked_for = given.pop("algorithm", ["fedavg", "hierfavg", "hist", "hiersfl", "sdfeel"])
    names = [name.lower() if str(name).lower() in ALGORITHMS else name for name in asked_for]
    for name in names:
        algorithm(name)
    for key in ("seed", "target"):
        if len(given.get(key, [0])) > 1:
            raise ConfigError(f"{key} is no choice of a plan; give one value")
    usual = _usual(str(given.get("optimizer", ["sgd"])[0]), stages, cells, linked=linked)
    fixed = {key: values[0] for key, values in given.items() if len(values) == 1}
    axes = {}
    for name in names:
        known = declared_by(name).keys() | Config.model_fields.keys()
        own = {key: values for key, values in usual.items() if key in known and key not in given}
        if name in ALGORITHMS and not _has_edges(name):  # τ is the product, so one of both will do
            several_rounds = own.pop("edge_rounds", None)
            if several_rounds is not None:
                own["edge_rounds"] = (1,)
                if "local_steps" in own:
                    own["local_steps"] = tuple(sorted({a * b for a in own["local_steps"] for b in several_rounds}))
        several = {key: tuple(values) for key, values in given.items() if len(values) > 1 and key in known}
        axes[name] = own | several
    return Choices(axes, fixed)


def _usual(optimizer: str, stages: Sequence[str], cells: int, *, linked: bool) -> dict[str, tuple[Any, ...]]:
    """Return what is tried of keys that nobody mentions."""
    found: dict[str, tuple[Any, ...]] = {
        "lr": RATES.get(optimizer, OTHER_RATES),
        "local_steps": (2, 5, 10, 20),
        "edge_rounds": (1, 4),
        "codec": ("none", "int8"),
        "gossip": (1, 3),
        "cut": ("0", *stages[:-1]),
    }
    if cells >= 4:
        found["submodels"] = (cells // 2, cells)
    if not linked and cells >= 4:  # with three or fewer a ring is complete
        found["graph"] = ("ring", "complete")
    elif not linked:
        found["graph"] = ("complete",)
    return found


def _has_edges(name: str) -> bool:
    base = ALGORITHMS[name].form_of or name
    return base != "fedavg"


def name_of(chosen: Mapping[str, Any], axes: Mapping[str, Sequence[Any]]) -> str:
    """Name a setting by what was chosen."""
    words = [f"{key}={chosen[key]}" for key, values in axes.items() if len(values) > 1]
    return " ".join([str(chosen["algorithm"]), *words])


def distinct(settings: Iterable[Keys]) -> list[Keys]:
    """Leave out settings whose runs would be one and the same."""
    found: dict[str, Keys] = {}
    for keys in settings:
        found.setdefault(canonical(Config.of(keys).model_dump()), keys)
    return list(found.values())
