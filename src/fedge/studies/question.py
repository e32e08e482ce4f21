"""The question of a plan: what is to be small, what must not be exceeded or seen, and how long may be searched."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedge.errors import ConfigError, brief
from fedge.studies.exposure import excluded
from fedge.studies.trials import Energy, Spent
from fedge.studies.words import WORDS

UNITS = {"seconds": ("s", 1.0), "bytes": ("MB", 1e-6), "energy": ("J", 1.0)}


@dataclass(frozen=True)
class Question:
    """This is what was asked for, besides the keys of runs."""

    minimise: str = "seconds"
    client_memory: float | None = None  # bytes, at most
    deadline: float | None = None  # simulated seconds, at most
    exclude: str = "inputs"  # what of clients' data nobody may see: raw inputs stay where they are, unless asked for
    client_watts: float | None = None
    joules_per_mb: float | None = None
    budget: int = 1_000_000  # client steps, at most, that planning takes
    settings: int = 48  # that race
    seeds: int = 3  # of the finals
    finalists: int = 3

    def __post_init__(self) -> None:
        if self.minimise not in Spent._fields:
            raise ConfigError(f"minimise={brief(self.minimise)} is not allowed; allowed: {', '.join(Spent._fields)}")
        if self.minimise == "energy" and self.energy == Energy():
            raise ConfigError("minimise=energy needs rates of it; give client_watts=W while a client computes, "
                              "joules_per_mb=J for what it sends and is sent, or both")  # fmt: skip
        excluded(self.exclude)
        for key in ("client_memory", "deadline", "client_watts", "joules_per_mb"):
            value = getattr(self, key)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{key}={value:g} is not allowed; allowed: a number > 0")
        for key, least in (("budget", 1), ("settings", 1), ("seeds", 1), ("finalists", 1)):
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 10**15:
                raise ConfigError(f"{key}={brief(value)} is not allowed; allowed: an integer ≥ {least}")

    @property
    def energy(self) -> Energy:
        return Energy(self.client_watts or 0.0, self.joules_per_mb or 0.0)

    def price(self, spent: Spent) -> float:
        return float(getattr(spent, self.minimise))

    def text(self, cost: float) -> str:
        """Write what is to be small with its unit."""
        unit, scale = UNITS[self.minimise]
        return f"{cost * scale:,.4g} {unit}"


def split(wanted: Mapping[str, Any]) -> tuple[Question, dict[str, Any]]:
    """Part the planner's own words from the keys of runs."""
    own = {k: value for k, value in wanted.items() if k in WORDS and value is not None}
    kinds = {"minimise": str, "exclude": str, "budget": int, "settings": int, "seeds": int, "finalists": int}
    for key, value in own.items():
        kind = kinds.get(key, float)
        value = ",".join(map(str, value)) if key == "exclude" and isinstance(value, list | tuple) else value
        try:
            own[key] = kind(value)
        except (TypeError, ValueError):
            noun = "an integer" if kind is int else "a number"
            raise ConfigError(f"{key}={brief(value)} is not allowed; allowed: {noun} > 0") from None
    if wanted.get("target") is None:
        raise ConfigError("a plan needs a target to reach; give target=0.8, say")
    for key in ("budget_seconds", "budget_bytes"):
        if wanted.get(key) is not None:
            raise ConfigError(f"{key} ends a run, and a plan's runs end at its target; give deadline=SECONDS instead")
    return Question(**own), {key: value for key, value in wanted.items() if key not in WORDS}
