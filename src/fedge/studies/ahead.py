"""Estimate how many client steps a plan still takes, if it goes on as so far, and at most.

What a round costs is known, so the steps up to any cost are. What is not known is the cost of the target: once a
setting has reached it, it is that one's; before, it is where the best will be if it goes on at its pace, which is too
early, since learning slows down. At most a plan takes what is left of its budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from fedge.studies.race import GROWTH, KEEP, SURE

SAYS_SOMETHING = 0.1  # part of the way from which on the pace of the best is one


class Ahead(NamedTuple):
    """This is what is still to be trained, and what was."""

    likely: int | None  # client steps, if it goes on as so far; None while nothing can be said
    most: int
    new: int  # settings of this lap that have not trained yet: their programs are still to be compiled
    made: int  # client steps that this process has made; others are remembered


class Runner(NamedTuple):
    """This is a setting in a race: the client steps of a unit of cost, the cost so far, and its progress."""

    steps: float
    cost: float
    progress: float


def goal_of(runners: Sequence[Runner], best: float) -> float | None:
    """Return the cost at which the target is reached, or will be at the pace of the best; None while nobody can say."""
    if math.isfinite(best):
        return best
    return min((one.cost / one.progress for one in runners if one.progress >= SAYS_SOMETHING), default=None)


def race_ahead(runners: Sequence[Runner], level: float, goal: float) -> float:
    """Return the client steps of a race from the lap up to `level` on, of which half of all go after each lap."""
    order, steps, before = sorted(runners, key=lambda one: -one.progress), 0.0, 0.0
    sure = max((one.progress for one in runners), default=0.0) >= SURE
    while order:
        end = min(level, goal)
        steps += sum(one.steps * max(0.0, end - max(one.cost, before)) for one in order)
        if level >= goal:
            break
        sure = sure or level >= SURE * goal
        order = order[: max(1, math.ceil(KEEP * len(order)))] if sure else order
        before, level = end, level * GROWTH
    return steps
