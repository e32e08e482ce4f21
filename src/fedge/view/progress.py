"""Show progress while a run goes on: a bar on a terminal, plain lines elsewhere; always on standard error."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fedge.experiment.build import Experiment
from fedge.experiment.config import Config
from fedge.runner.result import Listener, Result
from fedge.runner.rows import Row, tested
from fedge.view.numbers import metric_text, words

LINES = 10  # plain lines per run
SILENCE = 30.0  # seconds without a plain line after which a long round says how far it is


class Ticker(Listener):
    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        self._next = 0  # the round from which on another line is due
        self._said = 0.0  # when the last line was printed
        self._mark = (0, 0.0, 0.0)  # a long round, the first part of it that was heard of, and when
        self.out: Path | None = None

    def ready(self, experiment: Experiment, out: Path) -> None:
        self.out, self._next, self._said, self._mark = out, 0, time.monotonic(), (0, 0.0, 0.0)
        c = experiment.config
        if not self._console.is_terminal:
            length = f"{c.rounds} rounds" if c.rounds else "as many rounds as the budget covers"
            print(f"{c.algorithm}: {length}, run folder {out}", file=self._console.file, flush=True)
            return
        self._bar = Progress(
            TextColumn("{task.description:>10}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(), console=self._console,
        )  # fmt: skip
        self._bar.add_task(c.algorithm, total=c.rounds, note="compiling …")
        self._bar.start()

    def part(self, number: int, part: float, config: Config) -> None:
        now = time.monotonic()
        if self._mark[0] != number:
            self._mark = (number, part, now)
        _, first, since = self._mark
        left = f", about {duration((now - since) / (part - first) * (1 - part))} left" if part > first else ""
        note = f"round {number}: {part:.0%}{left}"
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], note=note)
        elif now - self._said >= SILENCE:
            print(f"{config.algorithm}: {note}", file=self._console.file, flush=True)
            self._said = now

    def round(self, row: Row, config: Config) -> None:
        names = dict.fromkeys((tested(row)[0], "loss"))
        note = "  ".join(f"{words(name)} {metric_text(row, name, digits=3)}" for name in names)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=row["round"], note=note)
        elif row["round"] == config.rounds or row["round"] >= self._next:
            of = f"/{config.rounds}" if config.rounds else ""
            line = f"{config.algorithm}: round {row['round']}{of}  {note}"
            print(line, file=self._console.file, flush=True)
            self._said = time.monotonic()
            step = max(1, config.rounds // LINES) if config.rounds else row["round"]  # a line for each doubling
            self._next = (row["round"] // step + 1) * step

    def finished(self, result: Result) -> None:
        self.close()
        if (said := reached(result)) is not None:
            print(f"{result.algorithm}: {said}", file=self._console.file, flush=True)
        self.out = None

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


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


def duration(seconds: float) -> str:
    """Say about how long something takes."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
