"""What a notebook shows: a result as a table and a figure, and a run's progress while it goes on."""

from __future__ import annotations

import base64
import time
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from fedge.experiment.build import Experiment
from fedge.experiment.config import Config
from fedge.runner.listener import Listener
from fedge.runner.result import Result
from fedge.runner.rows import Row, tested
from fedge.view.course import Course
from fedge.view.numbers import metric_text, words
from fedge.view.overlay import overlay
from fedge.view.selected import select

WIDTH = 100  # characters of a line
OFTEN = 0.25  # seconds between two pictures of progress


def html_of(result: Result) -> str:
    """Write a result as a table, above its main metric over rounds."""
    heads, cells = ["algorithm"], [result.algorithm]
    if result.history:
        row = result.final
        names = dict.fromkeys((*tested(row), "round", "simulated_seconds"))
        heads += [words(name) for name in names]
        cells += [str(row[name]) if name == "round" else metric_text(row, name) for name in names]
        heads.append("sent MB")
        cells.append(f"{sum(row['bytes'].values()) / 1e6:,.0f}")
    state = "diverged" if result.diverged else "stopped early" if result.stopped else ""
    table = "".join(f"<th>{escape(head)}</th>" for head in heads)
    values = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    said = f"<p>{escape(' · '.join(filter(None, [state, f'run folder: {result.out}'])))}</p>"
    return f"<table><tr>{table}</tr><tr>{values}</tr></table>{_picture(result)}{said}"


class Cell(Listener):
    """This shows a run's progress in the output of a notebook's cell, where there is no terminal to draw on."""

    def __init__(self) -> None:
        self._course: Course | None = None
        self._handle: Any = None
        self._said = 0.0

    def ready(self, experiment: Experiment, out: Path) -> None:
        self._course = Course(experiment)
        self._handle = import_module("IPython.display").display(self._text(), display_id=True)

    def trained(self, done: int, loss: float, config: Config) -> None:
        if self._course is not None:
            self._course.trained(done)

    def tested(self, row: Row, config: Config) -> None:
        if self._course is not None:
            self._course.tested(row)
            if time.monotonic() - self._said > OFTEN:
                self._show()

    def finished(self, result: Result) -> None:
        self._show()

    def _show(self) -> None:
        self._said = time.monotonic()
        self._handle.update(self._text())

    def _text(self) -> Any:
        said = "\n".join(self._course.lines(WIDTH)) if self._course is not None else ""
        return import_module("IPython.display").HTML(f"<pre>{escape(said)}</pre>")


def _picture(result: Result) -> str:
    if not result.history:
        return ""
    drawn = base64.b64encode(overlay(select([result.out]))._repr_png_()).decode()
    return f'<img alt="main metric over rounds" style="max-width: 100%" src="data:image/png;base64,{drawn}">'
