"""Draw curves over rounds and time, and write every figure into PNG and PDF files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from numpy.typing import NDArray

from fedge.runner.result import Result
from fedge.runner.rows import Row, tested
from fedge.studies.curve import Curve, Table, names_of, write_file
from fedge.studies.recipe import FigureRecipe
from fedge.view.numbers import is_share, words

# Okabe and Ito's colours: told apart by colour-blind readers too; line styles for black and white print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))


def save(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as PNG and PDF; `path` has no suffix. The same figure gives the same bytes."""
    written = [path.with_name(path.name + suffix) for suffix in (".png", ".pdf")]
    for target in written:
        write(figure, target)
    return written


def write(figure: Figure, path: Path) -> None:
    """Write a figure into one file of the kind that its suffix names: PNG, PDF or SVG."""
    write_file(path, image_of(figure, path.suffix[1:].lower()))


def image_of(figure: Figure, kind: str) -> bytes:
    """Return a figure as PNG, PDF or SVG."""
    drawn = io.BytesIO()
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind, {})
    with matplotlib.rc_context({"pdf.fonttype": 42, "svg.hashsalt": "fedge"}):
        figure.savefig(drawn, format=kind, dpi=150, bbox_inches="tight", metadata=undated)
    return drawn.getvalue()


def tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)


def curves(results: list[Result]) -> Figure:
    """Draw the main metric against local iterations and simulated seconds, and test loss."""
    figure = Figure(figsize=(12, 4), layout="constrained")
    panels, main = figure.subplots(1, 3), tested(results[0].history[0])[0]
    for number, r in enumerate(results):
        drawn: dict[str, Any] = look(number) | ({"marker": "o"} if len(r.history) == 1 else {})
        iteration = [row["iteration"] for row in r.history]
        values = _numbers(r.history, main) * (100 if is_share(main) else 1)
        panels[0].plot(iteration, values, label=plain(r.algorithm), **drawn)
        panels[1].plot([row["simulated_seconds"] for row in r.history], values, **drawn)
        panels[2].plot(iteration, _numbers(r.history, "loss"), **drawn)
    across = ("local iterations", "simulated seconds", "local iterations")
    said = f"test {words(main)}{' (%)' if is_share(main) else ''}"
    for axes, x, y in zip(panels, across, (said, said, "test loss"), strict=True):
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        tidy(axes)
    _logarithmic(panels[1])
    figure.legend(loc="outside lower center", ncols=6, frameon=False)
    c = results[0].config
    figure.suptitle(
        f"{Path(c.data).name}, {Path(c.partition).name}, {c.model}: {c.clients:,} clients in {c.cells:,} cells, "
        f"{c.edge_rounds} × {c.local_steps} steps per round",
        fontsize=10,
    )
    return figure


def _numbers(history: list[Row], name: str) -> NDArray[np.float64]:
    """Return a column, with gaps where it is no number."""
    return np.array([np.nan if row[name] is None else row[name] for row in history], np.float64)


def look(number: int) -> dict[str, Any]:
    """Give the line of this number its colour and its style."""
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": STYLES[number % len(STYLES)], "linewidth": 1.8}


def plain(text: str) -> str:
    """Mark text as one that holds no formula, whatever dollar signs are in it."""
    return text.replace("$", r"\$")


def _logarithmic(axes: Axes) -> None:
    """Make x logarithmic, with two to seven plain numbers on it, be it a tenth of a decade long or ten decades."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(FixedLocator(log_ticks(low, high)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,g}" if 1e-4 < x < 1e6 else f"{x:.0e}"))
    axes.xaxis.set_minor_locator(NullLocator())


def log_ticks(low: float, high: float) -> list[float]:
    """Choose round numbers from `low` to `high`, so far apart on a logarithmic axis that their labels have room."""
    decades = np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    room = np.log(high / low) / 6
    steps = [((1, 2, 5), 1), ((1, 3), 1), ((1,), 1), ((1,), 2), ((1,), 3), ((1,), 5), ((1,), 20)]
    for least, (digits, every) in product((3, 2), steps):
        ticks = [float(f"{d}e{int(e)}") for e in decades[::every] for d in digits]
        ticks = [x for x in ticks if low <= x <= high]
        if len(ticks) >= least and np.diff(np.log(ticks)).min() >= room:
            return ticks
    chosen: list[float] = []
    for x in MaxNLocator(5).tick_values(low, high):  # on a short axis, evenly spaced numbers
        if low <= x <= high and (not chosen or np.log(x / chosen[-1]) >= room):
            chosen.append(float(x))
    return chosen


NAMES = {
    "simulated_seconds": "simulated seconds", "iteration": "local iterations", "global_loss": "training loss",
    "accuracy": "test accuracy (%)", "objective": "objective", "edge_accuracy": "edges' test accuracy (%)",
    "round": "global rounds", "bytes": "sent on all tiers (GB)", "cells": "cells N",
    "client_load": "uploaded by a client (whole models)",
    "load": "load to the target (whole models)",
}  # fmt: skip


ACROSS = 3  # panels side by side


def reproduction(figure: FigureRecipe, curves: Sequence[Curve], titles: dict[str, str]) -> Figure:
    """Draw a paper's figure from its curves, a panel for each variant; bands are one standard deviation over seeds."""
    variants = list(dict.fromkeys(c.variant for c in curves))
    series = list(dict.fromkeys(_series(figure, curves)))
    down, across = -(-len(variants) // ACROSS), min(len(variants), ACROSS)
    height = 3.8 + 0.2 * -(-len(series) // 2)
    drawing = Figure(figsize=(5 * across, height * down), layout="constrained")
    panels = drawing.subplots(down, across, squeeze=False, sharey=figure.target is not None).flatten()
    for axes in panels[len(variants) :]:
        axes.remove()
    for axes, variant in zip(panels, variants, strict=False):
        _panel(axes, figure, [c for c in curves if c.variant == variant], series)
        axes.set_title(plain(titles.get(variant, variant)), fontsize=10)
    drawing.suptitle(plain(figure.caption), fontsize=11)
    return drawing


def _series(figure: FigureRecipe, curves: Sequence[Curve]) -> list[str]:
    """Name each curve's line: with cells along the axis, one line takes the curves of all numbers of cells."""
    return [c.label for c in curves] if figure.x == "cells" else names_of(curves)


def _panel(axes: Axes, figure: FigureRecipe, curves: list[Curve], series: list[str]) -> None:
    """Draw one variant's curves; a series looks the same in every panel."""
    rates = len({c.lr for c in curves}) > 1
    lines: dict[str, list[Curve]] = {}
    for name, curve in zip(_series(figure, curves), curves, strict=True):
        lines.setdefault(name, []).append(curve)
    for name, own in lines.items():
        if figure.target is not None:
            x = np.array([float(c.cells) for c in own])
            values = np.array([c.load_to(figure.target) for c in own]).T
            if np.isnan(values).any(0).all():
                axes.text(0.5, 0.9 - 0.1 * series.index(name), f"{plain(name)}: not reached by every seed",
                          transform=axes.transAxes, ha="center")  # fmt: skip
        else:
            x, values = own[0].columns[figure.x].mean(0), own[0].columns[figure.y]
        label = f"{name}, lr {own[0].lr:g}" if rates else name
        _band(axes, figure, x, values, label, series.index(name))
    axes.set_xlabel(NAMES[figure.x])
    if figure.x == "cells":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    elif axes.get_xlim()[1] >= 1e4:
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,g}"))
    axes.set_ylabel(NAMES[figure.y])
    if "accuracy" in figure.y:
        axes.set_ylim(top=min(axes.get_ylim()[1], 100))
    # Below the axes: inside them no corner is free of curves in every figure.
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, frameon=False, fontsize=8)
    tidy(axes)


def _band(axes: Axes, figure: FigureRecipe, x: Table, values: Table, label: str, number: int) -> None:
    """Draw the mean over seeds and the standard deviation about it."""
    x = x / 1e9 if figure.x == "bytes" else x
    values = values * (100 if "accuracy" in figure.y else 1)
    middle, half = values.mean(0), values.std(0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
    marker, drawn = "o" if figure.target is not None else None, look(number)
    axes.plot(x, middle, label=plain(label), marker=marker, **drawn)
    axes.fill_between(x, middle - half, middle + half, color=drawn["color"], alpha=0.12, linewidth=0)
