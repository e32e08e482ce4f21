"""Lay runs over one another in one figure: a line for each, a band over seeds where runs differ in their seed only."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fedge.view.numbers import is_share, words
from fedge.view.plots import image_of, look, plain, tidy
from fedge.view.prose import UNITS
from fedge.view.selected import columns_of, lines_of

ACROSS = {"rounds": "global rounds", "iterations": "local iterations", "seconds": "simulated seconds"}
LETTERS = 60  # of a name in the legend
NAMED = 24  # lines that have a name in the legend


class Drawing(Figure):
    """This is a figure that a notebook displays, whatever backend it has."""

    def _repr_png_(self) -> bytes:
        return image_of(self, "png")


def overlay(page: dict[str, Any], x: str = "rounds", y: str | None = None) -> Drawing:
    """Draw these runs against global rounds, local iterations, simulated seconds or bytes."""
    across, up = columns_of(page, x, y)
    figure = Drawing(figsize=(6, 4), layout="constrained")
    axes, scale = figure.subplots(), 100 if is_share(up) else 1
    lines = lines_of(page)
    most = max(float(np.nanmax(_numbers(run["columns"][across]))) for _, runs, _ in lines for run in runs)
    name, unit = next((u for u in UNITS if most >= u[1]), ("bytes", 1)) if x == "bytes" else ("", 1)
    for number, (label, runs, band) in enumerate(lines):
        own: dict[str, Any] = look(number) | ({"label": _short(label)} if number < NAMED else {})
        if band:
            places = _numbers(band[across]["mean"]) / unit
            axes.plot(places, scale * _numbers(band[up]["mean"]), **own)
            low, high = (scale * _numbers(band[up][end]) for end in ("low", "high"))
            axes.fill_between(places, low, high, color=own["color"], alpha=0.15, linewidth=0)
            continue
        columns = runs[0]["columns"]
        marker: dict[str, Any] = {"marker": "o"} if len(columns[up]) == 1 else {}
        axes.plot(_numbers(columns[across]) / unit, scale * _numbers(columns[up]), **own, **marker)
    axes.set_xlabel(f"sent on all tiers ({name})" if x == "bytes" else ACROSS[x])
    axes.set_ylabel(_title(up))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=x in ("rounds", "iterations")))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    tidy(axes)
    low, high = axes.get_ylim()
    if is_share(up):  # an interval over few seeds knows no bounds, a share does
        axes.set_ylim(max(low, 0), min(high, 100))
    columns = 2 if max(len(label) for label, *_ in lines) < LETTERS // 2 else 1
    figure.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
    notes = ["bands: 95 % confidence interval of the mean over seeds"] * any(band for *_, band in lines)
    notes += [f"{len(lines) - NAMED} more lines without a name"] * (len(lines) > NAMED)
    if notes:
        axes.set_title("; ".join(notes), fontsize=8, loc="left")
    return figure


def _short(label: str) -> str:
    return plain(label if len(label) <= LETTERS else f"{label[: LETTERS - 1]}…")


def _title(name: str) -> str:
    said = {"loss": "test loss", "train_loss": "training loss", "accuracy": "test accuracy"}.get(name, words(name))
    return f"{said} (%)" if is_share(name) else said


def _numbers(values: list[float | None]) -> Any:
    return np.array([np.nan if value is None else value for value in values], float)
