"""Show progress while a run goes on: lines that live on a terminal, plain lines elsewhere; always on standard error."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from fedge.experiment.build import Experiment
from fedge.experiment.config import Config
from fedge.runner.listener import Listener
from fedge.runner.result import Result
from fedge.runner.rows import Row
from fedge.view.course import Course
from fedge.view.numbers import duration, words

LINES = 10  # plain lines per run
SILENCE = 30.0  # seconds without a plain line after which a long round says how far it is


class Ticker(Listener):
    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._live: Live | None = None
        self._course: Course | None = None
        self._next = 0  # the round from which on another line is due
        self._said = 0.0  # when the last line was printed
        self._mark = (0, 0.0, 0.0)  # a long round, the first part of it that was heard of, and when
        self.out: Path | None = None

    def ready(self, experiment: Experiment, out: Path) -> None:
        self.out, self._next, self._said, self._mark = out, 0, time.monotonic(), (0, 0.0, 0.0)
        self._course = Course(experiment)
        c = experiment.config
        if self._console.is_terminal:
            self._live = Live(get_renderable=self._draw, console=self._console, refresh_per_second=4)
            self._live.start()
            return
        length = f"{c.rounds} rounds" if c.rounds else "as many rounds as the budget covers"
        self._print(f"{c.algorithm}: {length}, run folder {out}; compiling …")

    def part(self, number: int, part: float, config: Config) -> None:
        now = time.monotonic()
        if self._mark[0] != number:
            self._mark = (number, part, now)
        _, first, since = self._mark
        left = f", about {duration((now - since) / (part - first) * (1 - part))} left" if part > first else ""
        note = f"round {number}: {part:.0%}{left}"
        if self._course is not None:
            self._course.inside = note
        if self._live is None and now - self._said >= SILENCE:
            self._print(f"{config.algorithm}: {note}")
            self._said = now

    def trained(self, done: int, loss: float, config: Config) -> None:
        if self._course is not None:
            self._course.trained(done)

    def tested(self, row: Row, config: Config) -> None:
        if self._course is None:
            return
        self._course.tested(row)
        if self._live is None and (row["round"] == config.rounds or row["round"] >= self._next):
            of = f"/{config.rounds}" if config.rounds else ""
            self._print(f"{config.algorithm}: round {row['round']}{of}  {self._course.line()}")
            self._said = time.monotonic()
            step = max(1, config.rounds // LINES) if config.rounds else row["round"]  # a line for each doubling
            self._next = (row["round"] // step + 1) * step

    def finished(self, result: Result) -> None:
        self.close()
        if (said := reached(result)) is not None:
            self._print(f"{result.algorithm}: {said}")
        self.out = None

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self) -> Text:
        lines = self._course.lines(self._console.width - 1) if self._course else []
        return Text("\n".join(lines), no_wrap=True, overflow="crop")

    def _print(self, line: str) -> None:
        print(line, file=self._console.file, flush=True)


def reached(result: Result) -> str | None:
    """Say whether and when a run was at its target; None where it had none."""
    target, at = result.experiment.target, result.reached
    if target is None:
        return None
    what = f"{words(target.metric)} {target.value:g}"
    what += f" (mean of {target.mean_of} evaluations)" if target.mean_of > 1 else ""
    if at is None:
        return f"{what} was not reached"
    sent = sum(at.bytes.values()) / 1e6
    return (
        f"{what} reached after round {at.round}: iteration {at.iteration:,}, {at.simulated_seconds:,.1f} simulated s, "
        f"{sent:,.0f} MB"
    )
