"""A device is on at some times and off at others; what it computes and sends pauses while it is off.

F(t) = the seconds that it has been on until t; work of s seconds that begins at t is done at the first u with
F(u) = F(t) + s.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from fedge.errors import ConfigError


@dataclass(frozen=True)
class Availability:
    """A device is on in these intervals, from start to end; they come again every `repeat` seconds, unless the last one
    has no end."""

    intervals: tuple[tuple[float, float], ...]
    repeat: float = math.inf

    @classmethod
    def of(cls, what: str, intervals: list[tuple[float, float]], repeat: float = math.inf) -> Availability:
        """Check intervals: in order, apart, and known for ever, since an edge waits for a client that is off."""
        if not intervals:
            raise ConfigError(f"{what} is never on; give at least one interval")
        before = 0.0
        for start, end in intervals:
            if not (0 <= start < end and math.isfinite(start)):
                raise ConfigError(
                    f"{what} is on from {start:g} to {end:g} s; an interval begins at 0 or "
                    "later and ends after its start"
                )
            if start < before:
                raise ConfigError(
                    f"{what} is on from {start:g} s, before the interval that ends at {before:g} s is over; put "
                    "intervals in order and apart"
                )
            before = end
        if math.isinf(before) and math.isfinite(repeat):
            raise ConfigError(
                f"{what} has an interval without an end, and repeats every {repeat:g} s; keep one of both"
            )
        if math.isfinite(before) and not before <= repeat < math.inf:
            raise ConfigError(
                f"{what} is known until {before:g} s only; say with repeat= after how many seconds (at least as many) "
                "it begins again, or let its last interval end at inf"
            )
        return cls(tuple(intervals), repeat)

    @cached_property
    def _starts(self) -> list[float]:
        return [start for start, _ in self.intervals]

    @cached_property
    def _on(self) -> float:
        """Return the seconds of one repetition that the device is on."""
        return sum(end - start for start, end in self.intervals)

    @property
    def share(self) -> float:
        """Return the share of time that the device is on, in the long run."""
        return self._on / self.repeat if math.isfinite(self.repeat) else 1.0

    def off_between(self, begin: float, end: float) -> float:
        """Return for how many of these seconds the device is off."""
        return end - begin - (self._on_until(end) - self._on_until(begin))

    def _on_until(self, now: float) -> float:
        """This is F(t)."""
        base, here = self._split(now)
        before = round(base / self.repeat) * self._on if base else 0.0
        return before + sum(max(0.0, min(here, end) - start) for start, end in self.intervals)

    def state(self, now: float) -> tuple[bool, float]:
        """Say whether the device is on from `now` on, and until when that stays so."""
        base, here = self._split(now)
        for start, end in self.intervals:
            for switch, before in ((start, False), (end, True)):
                if base + switch > now and here < switch:
                    return before, base + switch
        again = base + self.repeat + self.intervals[0][0]
        while again <= now:
            again = math.nextafter(again, math.inf)
        return False, again

    def finish(self, now: float, seconds: float) -> float:
        """Return when so many seconds of work are done that begin at `now`."""
        if seconds <= 0:
            return now
        base, here = self._split(now)
        whole = 0
        if math.isfinite(self.repeat) and seconds > self._on:
            whole = int(seconds / self._on) - 1  # repetitions that are surely used up
            seconds -= whole * self._on
        while True:
            at = max(0, bisect_right(self._starts, here) - 1)
            for start, end in self.intervals[at:]:
                begin = max(start, here)
                if begin < end:
                    if seconds <= end - begin:
                        return base + whole * self.repeat + begin + seconds
                    seconds -= end - begin
            base, here = base + self.repeat, 0.0

    def _split(self, now: float) -> tuple[float, float]:
        """Part a time into when its repetition began, and the seconds since."""
        if math.isinf(self.repeat):
            return 0.0, now
        base = math.floor(now / self.repeat) * self.repeat
        return base, now - base
