"""Rules by their names, as they are typed."""

from __future__ import annotations

import re

from fedge.core.update import Rule
from fedge.errors import ConfigError, brief, suggestion
from fedge.updates.clipping import clipping
from fedge.updates.geometric import geometric
from fedge.updates.krum import krum
from fedge.updates.median import median
from fedge.updates.names import NUMBER, own
from fedge.updates.trimmed import trimmed

NAMES = ("mean", "median", "trimmed:0.2", "krum:1", "multikrum:1:3", "geometric", "clip:1.0")
ALLOWED = (
    "mean, median, trimmed:F with a fraction F dropped at each end, krum:F with F attackers, multikrum:F:M with the "
    "mean of the best M, geometric, clip:B with the greatest norm B of an update, or package.module:function with one "
    "of your own"
)


def rule(text: str, key: str = "rule") -> Rule | None:
    """Return the rule of this name, or None for the weighted mean; `key` asks for it."""
    if text == "mean":
        return None
    try:
        if text == "median":
            return median()
        if text == "geometric":
            return geometric()
        if found := re.fullmatch(f"trimmed:{NUMBER}", text, re.ASCII):
            return trimmed(float(found[1]))
        if found := re.fullmatch(f"clip:{NUMBER}", text, re.ASCII):
            return clipping(float(found[1]))
        if found := re.fullmatch(r"krum:(\d{1,9})", text, re.ASCII):
            return krum(int(found[1]))
        if found := re.fullmatch(r"multikrum:(\d{1,9}):(\d{1,9})", text, re.ASCII):
            return krum(int(found[1]), int(found[2]))
    except ConfigError as problem:
        raise ConfigError(f"{key}={brief(text)}: {problem}") from None
    if made := own(key, text, Rule, frozenset(name.partition(":")[0] for name in NAMES)):
        return made
    raise ConfigError(f"{key}={brief(text)} is no rule; allowed: {ALLOWED}{suggestion(text, NAMES)}")
