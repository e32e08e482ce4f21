"""A bound is a number, the terms it is the sum of, and whether the conditions it was derived under hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bound:
    terms: dict[str, float]
    valid: bool
    conditions: dict[str, bool]  # each condition of the theorem, and whether it holds

    @property
    def value(self) -> float:
        return sum(self.terms.values())


def bound(terms: dict[str, float], conditions: dict[str, bool]) -> Bound:
    return Bound(terms, all(conditions.values()), conditions)


def times(factor: float, cause: float) -> float:
    """Multiply, where an infinite factor on an absent cause is no cost."""
    return factor * cause if cause else 0.0
