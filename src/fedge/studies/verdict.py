"""Verdicts on what papers claim, from paired runs: the series of a figure share each seed's data, initial model and
sample order, so that a difference within a seed says more than two spreads.

The rule, for every claim of every paper:

- A pair "A is better than B": d_s is A's advantage over B on seed s (less loss, less load, more accuracy). From the
  mean of d and its 95 % interval by Student's t: **confirmed** if the interval lies above 0, **refuted** if it lies
  below 0, **undecided** otherwise. With `within`, the interval of A − B must lie inside (confirmed) or outside
  (refuted) the margin.
- "It ends with x %": **confirmed** if the 95 % interval of the mean over seeds lies within a point of x, **refuted** if
  x lies outside the interval, **undecided** otherwise.
- "It levels off at x": a seed's curve has levelled off when it stays within 5 % of its whole change from its last
  value. **Confirmed** if the interval of that place lies between x/1.5 and 1.5x, **refuted** if it lies outside.
- Fewer than three seeds decide nothing. A seed that diverged has no difference: its pair is undecided, unless every
  seed of one series diverged and none of the other. A load that was not reached counts as the whole load of the run.
- A claim over several pairs is confirmed if all are, refuted if one is, and undecided otherwise.
- The comparisons of one figure and variant are many: where a word rests on one that does not survive Holm's correction
  over all of them (5 % for the figure), it bears a †. One that two claims rest on counts once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from fedge.studies.curve import Curve, Table, names_of
from fedge.studies.interval import LEVEL, Interval, interval
from fedge.studies.recipe import Claim, FigureRecipe

FEWEST = 3  # seeds
FLAT = 0.05  # of a curve's whole change
ABOUT = 1.5  # a factor
NEAR = 0.01  # a point of accuracy
LOWER_IS_BETTER = ("global_loss", "objective", "load")


class Word(StrEnum):
    """This is what came of a claim."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Comparison:
    """This is one comparison behind a claim, in one variant."""

    what: str
    found: Interval
    agree: int  # seeds on the claim's side
    seeds: int
    word: Word
    survives: bool = True  # Holm's correction over the figure


@dataclass(frozen=True)
class Verdict:
    """This is what one variant's runs say of a claim."""

    claim: Claim
    variant: str
    comparisons: list[Comparison]

    @property
    def word(self) -> Word:
        words = {c.word for c in self.comparisons}
        if Word.REFUTED in words:
            return Word.REFUTED
        return Word.CONFIRMED if words == {Word.CONFIRMED} else Word.UNDECIDED

    @property
    def survives(self) -> bool:
        """Say whether what the word rests on survives the correction: all that confirm, or one that refutes."""
        behind = [c.survives for c in self.comparisons if c.word is self.word]
        return self.word is Word.UNDECIDED or (any if self.word is Word.REFUTED else all)(behind)


def holm(ps: Sequence[float]) -> list[bool]:
    """Say which of these survive Holm's correction at 5 %: the k-th smallest of n must be below 5 %/(n − k + 1)."""
    survives, order = [False] * len(ps), sorted(range(len(ps)), key=lambda n: ps[n])
    for rank, place in enumerate(order):
        if ps[place] > (1 - LEVEL) / (len(ps) - rank):
            break
        survives[place] = True
    return survives


def verdicts(figure: FigureRecipe, curves: Sequence[Curve]) -> dict[str, list[Verdict]]:
    """Judge every claim of a figure in each variant: variant → a verdict for each claim."""
    found: dict[str, list[Verdict]] = {}
    for variant in dict.fromkeys(c.variant for c in curves):
        own = [c for c in curves if c.variant == variant]
        named = dict(zip(names_of(own), own, strict=True))
        each = [(claim, _compare(figure, claim, named)) for claim in figure.claims]
        ps = {_same(figure, claim, c): c.found.p for claim, comparisons in each for c in comparisons}
        survives = dict(zip(ps, holm(list(ps.values())), strict=True))
        found[variant] = [
            Verdict(claim, variant, [replace(c, survives=survives[_same(figure, claim, c)]) for c in comparisons])
            for claim, comparisons in each
        ]
    return found


def _same(figure: FigureRecipe, claim: Claim, comparison: Comparison) -> tuple[object, ...]:
    """Say which comparison this is: two claims that rest on the same one do not make it two."""
    return claim.column or figure.y, claim.paper, claim.levels_off, comparison.what


def _compare(figure: FigureRecipe, claim: Claim, curves: dict[str, Curve]) -> list[Comparison]:
    column, places = claim.column or figure.y, claim.at or [math.inf]
    if claim.levels_off is not None:
        return [_levels_off(name, curves[name], figure.x, column, claim.levels_off) for name in claim.series]
    found = []
    for place in places:
        ends = {name: measure(figure, curve, column, place) for name, curve in curves.items()}
        where = f" at {place:,.10g}" if math.isfinite(place) else ""
        found += [_pair(f"{a} − {b}{where}", ends[a], ends[b], column, claim.within) for a, b in claim.pairs]
        if claim.paper is not None:
            found += [_value(f"{name}{where}", ends[name], claim.paper) for name in claim.series]
    return found


def measure(figure: FigureRecipe, curve: Curve, column: str, place: float = math.inf) -> Table:
    """Return each seed's value of a column at a place on the figure's axis."""
    if column == "load":
        reached = curve.load_to(figure.target or 1.0)
        return np.where(np.isfinite(reached), reached, curve.columns["client_load"][:, -1])
    return curve.at("round" if figure.x == "cells" else figure.x, place, column)


def _pair(what: str, a: Table, b: Table, column: str, within: float | None) -> Comparison:
    """Judge that the first is better than the second, or that they are about the same."""
    finite = np.isfinite(a) & np.isfinite(b)
    seeds = len(a)
    if not finite.all():
        one_sided = not (np.isfinite(a).any() and np.isfinite(b).any()) and np.isfinite([*a, *b]).any()
        better = bool(np.isfinite(a).all())
        decided = one_sided and within is None and seeds >= FEWEST and (better or bool(np.isfinite(b).all()))
        word = (Word.CONFIRMED if better else Word.REFUTED) if decided else Word.UNDECIDED
        nothing = Interval(math.nan, math.nan, math.nan, 0.0 if decided else 1.0)
        return Comparison(f"{what} (diverged)", nothing, seeds if decided and better else 0, seeds, word)
    gain = (b - a) if column in LOWER_IS_BETTER else (a - b)
    found, difference = interval(gain), interval(a - b)
    if within is None:
        return Comparison(what, difference, int((gain > 0).sum()), seeds, _sign(found, seeds))
    word, p = _between(gain, -within, within)
    apart = np.abs(a - b)
    margin = f"{within:g}" if "accuracy" not in column else f"{100 * within:g} point{'s' * (within != 0.01)}"
    return Comparison(f"{what}, within {margin}", difference._replace(p=p), int((apart < within).sum()), seeds, word)


def _between(values: Table, low: float, high: float) -> tuple[Word, float]:
    """Judge that the mean lies between two limits, and return the p of that: of two one-sided tests, the larger."""
    found = interval(values)
    outside = max(_beyond(values, high), _beyond(-values, -low))
    if len(values) >= FEWEST and low < found.low and found.high < high:
        return Word.CONFIRMED, outside
    if len(values) >= FEWEST and (found.low > high or found.high < low):
        return Word.REFUTED, 1 - outside
    return Word.UNDECIDED, 1.0


def _beyond(values: Table, limit: float) -> float:
    """Return the one-sided p that the mean lies above a limit although the sample suggests that it lies below."""
    p = interval(values - limit).p / 2
    return p if np.mean(values) < limit else 1 - p


def _sign(found: Interval, seeds: int) -> Word:
    if seeds < FEWEST or found.low <= 0 <= found.high:
        return Word.UNDECIDED
    return Word.CONFIRMED if found.low > 0 else Word.REFUTED


def _value(what: str, values: Table, paper: float) -> Comparison:
    """Judge that a series ends with the paper's number."""
    found, agree = interval(values), int((np.abs(values - paper) < NEAR).sum())
    word, p = _between(values, paper - NEAR, paper + NEAR)
    if word is not Word.CONFIRMED:
        finite = bool(np.isfinite(values).all())
        decided = finite and len(values) >= FEWEST and not found.low <= paper <= found.high
        word, p = Word.REFUTED if decided else Word.UNDECIDED, interval(values - paper).p if finite else 1.0
    return Comparison(what, found._replace(p=p), agree, len(values), word)


def settling_place(x: Table, y: Table) -> float:
    """Return the place after which a curve stays within 5 % of its whole change from its last value."""
    away = np.abs(y - y[-1]) > FLAT * abs(y[0] - y[-1])
    last = int(np.flatnonzero(away)[-1]) if away.any() else -1
    return float(x[min(last + 1, len(x) - 1)])


def _levels_off(name: str, curve: Curve, axis: str, column: str, about: float) -> Comparison:
    places = np.array([settling_place(x, y) for x, y in zip(curve.columns[axis], curve.columns[column], strict=True)])
    found, seeds = interval(places), len(places)
    finite = bool(np.isfinite(curve.columns[column]).all())
    word, p = _between(places, about / ABOUT, about * ABOUT) if finite else (Word.UNDECIDED, 1.0)
    horizon = float(curve.columns[axis][:, -1].mean())
    still = f", still changing at the end ({horizon:,.4g})" if found.mean > 0.8 * horizon else ""
    agree = int(((places >= about / ABOUT) & (places <= about * ABOUT)).sum())
    return Comparison(f"{name}{still}", found._replace(p=p), agree, seeds, word)
