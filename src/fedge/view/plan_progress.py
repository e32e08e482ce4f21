"""Show how a plan goes on, and the time that it has left: live on a terminal, plain lines elsewhere; on standard error.

The time of what is ahead is that of a client step so far, and of a setting's first lap, in which its program may be
compiled. In the first lap these are not told apart, so only the time of that lap is known; then it gets better from lap
to lap.
"""

from __future__ import annotations

import time

from rich.console import Console
from rich.live import Live
from rich.text import Text

from fedge.studies.ahead import Ahead
from fedge.view.numbers import duration

SILENCE = 15.0  # seconds after which a plain line says again how far a lap is


class Pace:
    """This knows how long a client step takes, and a setting's first lap besides its steps."""

    def __init__(self) -> None:
        self._last: tuple[float, Ahead] | None = None
        self._first, self._firsts = [0.0, 0.0], 0  # seconds and client steps of first laps, and how many they were
        self._again = [0.0, 0.0]  # of all others

    def heard(self, now: float, ahead: Ahead) -> None:
        if self._last is not None:
            then, before = self._last
            took, made = now - then, ahead.made - before.made
            if made and ahead.new < before.new:
                self._first, self._firsts = [self._first[0] + took, self._first[1] + made], self._firsts + 1
            elif made:
                self._again = [self._again[0] + took, self._again[1] + made]
        self._last = now, ahead

    @property
    def knows_steps(self) -> bool:
        """Say whether something was trained whose program was there already."""
        return self._again[1] > 0

    def seconds(self, steps: float, new: int) -> float | None:
        """Return how long so many client steps take, of settings of which some are new; None while nobody knows."""
        took, made = (a + b for a, b in zip(self._first, self._again, strict=True))
        if not made:
            return None
        per_step = self._again[0] / self._again[1] if self._again[1] else took / made
        per_new = max(0.0, self._first[0] - per_step * self._first[1]) / self._firsts if self._firsts else 0.0
        return per_step * steps + per_new * new

    def first_laps(self, count: int) -> float:
        """Return how long so many more first laps take."""
        return count * self._first[0] / max(1, self._firsts)


class PlanTicker:
    """This tells how a plan goes on: a line for each lap, how far it is, and the time that the plan has left."""

    def __init__(self) -> None:
        self._console, self._pace = Console(stderr=True), Pace()
        self._what, self._said, self._note = "", 0.0, ""
        self._live: Live | None = None

    def __call__(self, what: str, done: int, of: int, steps: int, ahead: Ahead) -> None:
        now = time.monotonic()
        self._pace.heard(now, ahead)
        left = self._left(ahead)
        if what != self._what:
            self._what = what
            self._print(f"{what} ({steps:,} client steps so far{f'; {left}' if left else ''})", now)
        elif self._live is None and done and now - self._said >= SILENCE:
            self._print(f"{what}: {done} of {of}{f'; {left}' if left else ''}", now)
        self._note = f"{done} of {of}{f'; {left}' if left else ''}"

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _left(self, ahead: Ahead) -> str:
        """Say how long the plan still takes if it goes on as so far, and at most."""
        likely = None if ahead.likely is None else self._pace.seconds(ahead.likely, ahead.new)
        most = self._pace.seconds(ahead.most, ahead.new)
        if most is None:
            return ""
        if not self._pace.knows_steps:
            lap = self._pace.first_laps(ahead.new)
            return f"about {duration(lap)} left of this lap" if likely is None else f"about {duration(likely)} left"
        return (
            f"about {duration(likely)} left, {duration(most)} at most" if likely else f"{duration(most)} left at most"
        )

    def _print(self, line: str, now: float) -> None:
        self._said = now
        if not self._console.is_terminal:
            print(line, file=self._console.file, flush=True)
            return
        if self._live is None:
            self._live = Live(get_renderable=lambda: Text(self._note, no_wrap=True, overflow="ellipsis"),
                              console=self._console, refresh_per_second=4, transient=True)  # fmt: skip
            self._live.start()
        self._live.console.print(Text(line))
