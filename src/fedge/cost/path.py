"""The critical path of a round: who or what its time was spent on, from its beginning to its end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Span(NamedTuple):
    who: str  # client robot-1, edge hall-1, backhaul, link hall-1 → hall-2
    does: str
    seconds: float


class Path:
    """This adds up what somebody's time was spent on, by who it was and what they did."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, str], float] = {}

    def add(self, spans: Iterable[Span], times: int = 1) -> None:
        for who, does, seconds in spans:
            self._seconds[who, does] = self._seconds.get((who, does), 0.0) + times * seconds

    def copy(self) -> Path:
        twin = Path()
        twin._seconds = dict(self._seconds)
        return twin

    @property
    def spans(self) -> list[Span]:
        """List what took time, the longest first."""
        found = [Span(who, does, seconds) for (who, does), seconds in self._seconds.items() if seconds > 0]
        return sorted(found, key=lambda span: -span.seconds)

    @property
    def seconds(self) -> float:
        return sum(self._seconds.values())
