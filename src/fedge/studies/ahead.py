"""Estimate how many client steps a plan still takes, if it goes on as so far, and at most.

What a round costs is known, so the steps up to any cost are. What is not known is the cost of the target: once a
setting has reached it, it is that one's; before, it is where the best will be if it goes on at its pace, which is too
early, since learning slows down. The best of each other family survives each halving and goes on beyond the target's
cost (`race.py`), until it is there too at its own pace. At most a plan takes what is left of its budget.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
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
    """This is a setting in a race: the client steps of a unit of cost, the cost so far, its progress and its family."""

    steps: float
    cost: float
    progress: float
    family: str = ""

    @property
    def goal(self) -> float:
        """Return the cost at which it will be at the target at its pace; infinite while nobody can say."""
        return self.cost / self.progress if self.progress >= SAYS_SOMETHING else math.inf


def goal_of(runners: Sequence[Runner], best: float) -> float | None:
    """Return the cost at which the target is reached, or will be at the pace of the best; None while nobody can say."""
    goal = min([best, *(one.goal for one in runners)]) if math.isinf(best) else best
    return goal if math.isfinite(goal) else None


def race_ahead(
    runners: Sequence[Runner], level: float, goal: float, *, slack: float = 1.0, there: Collection[str] = ()
) -> float:
    """Return the client steps of a race from the lap up to `level` on, of which half of all go after each lap.

    The best of each family that is not `there`, at the target, stays for `slack` times the goal.
    """
    order, steps, before = sorted(runners, key=lambda one: -one.progress), 0.0, 0.0
    first = {one.family: place for place, one in reversed(list(enumerate(order))) if one.family not in there}
    alive, lap = list(range(len(order))), level
    sure = max((one.progress for one in runners), default=0.0) >= SURE
    while alive:
        end = min(lap, goal)
        steps += sum(order[n].steps * max(0.0, end - max(order[n].cost, before)) for n in alive)
        if lap >= goal:
            break
        sure = sure or lap >= SURE * goal
        stay = max(1, math.ceil(KEEP * len(alive))) if sure else len(alive)
        alive = [n for place, n in enumerate(alive) if place < stay or n in first.values()]
        before, lap = end, lap * GROWTH
    others = [order[n] for n in first.values()]
    if not there and others:  # the winner's family will be there
        others.remove(min(others, key=lambda one: one.goal))
    return steps + sum(one.steps * max(0.0, min(slack * goal, one.goal) - max(one.cost, goal)) for one in others)
