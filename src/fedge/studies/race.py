"""A race finds the setting that reaches a target most cheaply, without training all of them to the end.

What a setting costs is known before it trains; what it learns is not. So all train up to the same cost, which doubles
from lap to lap, and after a lap the worse half goes. Three things keep that honest:

- nobody goes before the best is a good part of the way (`SURE`): until then metrics are noise;
- who has not been tested yet, because one round of it costs more than the lap, waits and is not judged;
- once one has reached the target, nobody trains beyond its cost: who has not come by then is no better, which is exact.

The best of each family (algorithm) stays for `slack` times the winner's cost, so that the answer can show what else
there is. Nothing here is random, and nothing knows what training is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

SURE = 0.25  # part of the way from the untrained model to the target from which on settings are told apart
GROWTH = 2.0  # of a lap's cost
KEEP = 0.5  # of those that were tested


class BudgetSpentError(Exception):
    """Nothing more may be trained."""


class Standing(NamedTuple):
    """This is how far a setting has come."""

    rounds: int = 0
    progress: float = 0.0  # 0: as untrained, 1: at the target; the best so far
    reached: int | None = None  # the round after which it was at the target
    diverged: bool = False


class Track(Protocol):
    """A track knows costs and trains."""

    def price(self, name: str, rounds: int) -> float:
        """Return what so many rounds cost, in what is to be small."""
        ...

    def step(self, name: str) -> int:
        """Return after how many rounds each it is tested."""
        ...

    def allowed(self, name: str, rounds: int) -> bool:
        """Say whether it may have so many rounds."""
        ...

    def family(self, name: str) -> str: ...
    def train(self, name: str, rounds: int) -> Standing:
        """Train up to there, or to the target; raise BudgetSpentError where that may not be."""
        ...

    def lap(self, cost: float, alive: Sequence[str], best: float) -> None:
        """Hear of a lap that begins, up to a cost, when another has reached the target at `best`."""
        ...

    def text(self, cost: float) -> str: ...


@dataclass
class Result:
    """This is what came of a race: where each stands, and in words why it went."""

    standing: dict[str, Standing]
    fate: dict[str, str] = field(default_factory=dict)
    best: float = math.inf  # cost of the cheapest that reached the target
    spent: bool = False  # the budget ended it


def race(names: Sequence[str], track: Track, *, best: float = math.inf, slack: float = 1.0) -> Result:
    """Race these settings; `best` is a cost at which another has reached the target already."""
    result = Result({name: Standing() for name in names}, best=best)
    alive = list(names)
    level = _first_level(alive, track)
    try:
        while alive:
            track.lap(min(level, result.best), alive, result.best)
            _run_lap(alive, track, level, slack, result)
            alive = [name for name in alive if not _is_over(name, alive, track, slack, result)]
            for name in _worse_half(alive, track, level, result):
                result.fate[name] = f"dropped as one of the worse half, at {track.text(level)}"
                alive.remove(name)
            level *= GROWTH
    except BudgetSpentError:
        result.spent = True
        for name in alive:
            result.fate.setdefault(name, "not finished: the race's budget was too small for another lap")
    return result


def _first_level(names: Sequence[str], track: Track) -> float:
    """Return the cost at which a quarter of the settings have been tested once."""
    prices = sorted(track.price(name, track.step(name)) for name in names)
    return prices[len(prices) // 4] if prices else 0.0


def _run_lap(alive: Sequence[str], track: Track, level: float, slack: float, result: Result) -> None:
    """Train each as far as the lap goes, the best first: who reaches the target spares the others."""
    for name in sorted(alive, key=lambda n: (-result.standing[n].progress, track.price(n, track.step(n)))):
        room = result.best * (slack if name in _champions(alive, track, result) else 1.0)
        rounds = _affordable(name, track, min(level, room), result.standing[name].rounds)
        if rounds > result.standing[name].rounds:
            result.standing[name] = track.train(name, rounds)
        if (reached := result.standing[name].reached) is not None:
            result.best = min(result.best, track.price(name, reached))


def _affordable(name: str, track: Track, cost: float, done: int) -> int:
    """Return the largest number of rounds after which it is tested and that costs no more than this."""
    rounds = done
    while track.price(name, rounds + track.step(name)) <= cost and track.allowed(name, rounds + track.step(name)):
        rounds += track.step(name)
    return rounds


def _champions(alive: Sequence[str], track: Track, result: Result) -> set[str]:
    """Return the best of each family of which none has reached the target."""
    there = {track.family(n) for n, s in result.standing.items() if s.reached is not None}
    best: dict[str, str] = {}
    for name in alive:
        family = track.family(name)
        ahead = family not in best or result.standing[name].progress > result.standing[best[family]].progress
        if family not in there and ahead:
            best[family] = name
    return set(best.values())


def _is_over(name: str, alive: Sequence[str], track: Track, slack: float, result: Result) -> bool:
    """Say whether a setting has nothing more to do in this race, and write down why."""
    standing = result.standing[name]
    if standing.reached is not None:
        result.fate[name] = "reached the target"
    elif standing.diverged:
        result.fate[name] = "diverged"
    elif not track.allowed(name, standing.rounds + track.step(name)):
        result.fate[name] = "was not there at its last round"
    else:
        room = result.best * (slack if name in _champions(alive, track, result) else 1.0)
        if track.price(name, standing.rounds + track.step(name)) <= room:
            return False
        result.fate[name] = "cannot be cheaper than the best"
    return True


def _worse_half(alive: Sequence[str], track: Track, level: float, result: Result) -> list[str]:
    """Name those to drop after a lap: of those that were tested the worse half, but for the best of each family.

    One whose rounds are long has stopped short of the lap's cost; its progress is drawn on up to there.
    """
    tested = [name for name in alive if result.standing[name].rounds]
    ahead = max((s.progress for s in result.standing.values()), default=0.0)
    if ahead < SURE or len(tested) < 2:
        return []

    def drawn_on(name: str) -> float:
        standing = result.standing[name]
        return standing.progress * max(1.0, level / track.price(name, standing.rounds))

    order = sorted(tested, key=lambda name: -drawn_on(name))
    stay = max(1, math.ceil(KEEP * len(tested)))
    return [name for name in order[stay:] if name not in _champions(alive, track, result)]
