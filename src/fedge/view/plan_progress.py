"""Show how a plan goes on while it is made; always on standard error."""

from __future__ import annotations

import time

from rich.console import Console

from fedge.view.numbers import duration

SILENCE = 15.0  # seconds after which it is said again how far a lap is


class PlanTicker:
    """This tells how a plan goes on: a line for each lap, now and then how far it is, and the time that it has left."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._what, self._began, self._said = "", 0.0, 0.0

    def __call__(self, what: str, done: int, of: int, steps: int) -> None:
        now = time.monotonic()
        if what != self._what:
            self._what, self._began = what, now
            self._print(f"{what} ({steps:,} client steps so far)", now)
        elif done and now - self._said >= SILENCE:
            left = (now - self._began) / done * (of - done)
            self._print(f"{what}: {done} of {of}; about {duration(left)} left of this at most", now)

    def _print(self, line: str, now: float) -> None:
        self._said = now
        print(line, file=self._console.file, flush=True)
