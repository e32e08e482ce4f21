"""Show how far a sweep is: one bar over all its runs on a terminal, a line for a run elsewhere; on standard error."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from fedge.experiment.build import Experiment
from fedge.experiment.config import Config
from fedge.runner.listener import Listener
from fedge.runner.result import Result
from fedge.runner.rows import Row, tested
from fedge.view.numbers import duration, metric_text, words

LINES = 50  # plain lines of a sweep


class SweepTicker(Listener):
    """This tells of a sweep's runs, and of the time that is left by the pace of those that it saw."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        self._runs, self._done, self._before, self._part = 0, 0, 0, 0.0
        self._began = time.monotonic()
        self.out: Path | None = None

    def study(self, runs: int, done: int) -> None:
        self._runs, self._done, self._before, self._began = runs, done, done, time.monotonic()
        if done:
            print(f"{done} of {runs} runs are over already", file=self._console.file, flush=True)
        if self._console.is_terminal and done < runs:
            self._bar = Progress(
                TextColumn("sweep"), BarColumn(None), MofNCompleteColumn(), TextColumn("{task.fields[note]}"),
                console=self._console, expand=True,
            )  # fmt: skip
            self._bar.add_task("sweep", total=runs, completed=done, note="")
            self._bar.start()

    def ready(self, experiment: Experiment, out: Path) -> None:
        self.out, self._part = out, 0.0
        self._tell(f"{out.name}: compiling …" if self._done == self._before else out.name)

    def tested(self, row: Row, config: Config) -> None:
        self._part = row["round"] / config.rounds if config.rounds else 0.0
        self._tell(f"{self._name}: {self._numbers(row)}")

    def finished(self, result: Result) -> None:
        self._done, self._part = self._done + 1, 0.0
        said = f"{self._name}: {'diverged' if result.diverged else self._numbers(result.final)}"
        self._tell(said)
        step = max(1, self._runs // LINES)
        if self._bar is None and (self._done % step == 0 or self._done == self._runs):
            print(f"{self._done}/{self._runs}  {said}{self._left}", file=self._console.file, flush=True)
        self.out = None

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    @property
    def _name(self) -> str:
        return self.out.name if self.out else ""

    def _numbers(self, row: Row) -> str:
        main = tested(row)[0]
        return f"{words(main)} {metric_text(row, main)}"

    @property
    def _left(self) -> str:
        """Say how long the rest takes at the pace so far."""
        made, left = self._done - self._before + self._part, self._runs - self._done - self._part
        return f", about {duration((time.monotonic() - self._began) / made * left)} left" if made and left > 0 else ""

    def _tell(self, note: str) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._done + self._part, note=note + self._left)
