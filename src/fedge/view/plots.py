"""Figures, each written as PNG and PDF."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedge.runner.loop import Result
from fedge.runner.setup import Experiment

# Okabe and Ito's colours: told apart by colour-blind readers too; line styles for black and white print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))


def save(figure: Figure, path: Path) -> list[Path]:
    """`path` has no suffix."""
    written = []
    with matplotlib.rc_context({"pdf.fonttype": 42}):
        for suffix in (".png", ".pdf"):
            target = path.with_name(path.name + suffix)
            figure.savefig(target, dpi=150, bbox_inches="tight")
            written.append(target)
    return written


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.6)


def curves(results: list[Result]) -> Figure:
    """Test accuracy and losses against local iterations."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    panels = figure.subplots(1, 2)
    for number, r in enumerate(results):
        look = {"color": COLOURS[number % len(COLOURS)], "linestyle": STYLES[number % len(STYLES)], "linewidth": 1.8}
        mark = {"marker": "o"} if len(r.history) == 1 else {}
        iteration = [row["iteration"] for row in r.history]
        panels[0].plot(iteration, [100 * row["accuracy"] for row in r.history], label=r.algorithm, **look, **mark)
        panels[1].plot(iteration, [row["loss"] for row in r.history], label=r.algorithm, **look, **mark)
    for axes, label in zip(panels, ("test accuracy (%)", "test loss"), strict=True):
        axes.set_xlabel("local iterations")
        axes.set_ylabel(label)
        _tidy(axes)
    panels[0].legend(frameon=False)
    c = results[0].config
    figure.suptitle(
        f"{c.data}, {c.partition}, {c.model}: {c.clients} clients in {c.cells} cells, "
        f"{c.edge_rounds} × {c.local_steps} steps per round",
        fontsize=10,
    )
    return figure


def label_heatmap(made: Experiment) -> Figure:
    """How many samples of each class each client holds; clients in the order of their cells."""
    counts = made.partition.label_counts(made.dataset.y_train, made.dataset.classes)
    order = np.concatenate(made.topology.roster)
    width = float(np.clip(0.11 * len(order), 5, 14))
    figure = Figure(figsize=(width, 3.2), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(counts[order].T, aspect="auto", cmap="viridis", interpolation="nearest")
    sizes = np.cumsum([len(own) for own in made.topology.roster])
    for edge in sizes[:-1]:
        axes.axvline(edge - 0.5, color="white", linewidth=1.2)
    middles = (np.concatenate([[0], sizes[:-1]]) + sizes - 1) / 2
    step = max(1, len(middles) // 20)
    axes.set_xticks(middles[::step], [f"cell {d}" for d in range(0, len(middles), step)], fontsize=8)
    axes.set_yticks(range(made.dataset.classes))
    axes.set_xlabel("clients, cell by cell")
    axes.set_ylabel("class")
    c = made.config
    axes.set_title(f"{c.data}, {c.partition}: samples per client and class", fontsize=10)
    figure.colorbar(image, ax=axes, label="samples")
    return figure


def topology(made: Experiment) -> Figure:
    """The tree of cloud, edges and clients; a client's area follows its number of samples."""
    roster, size = made.topology.roster, np.asarray(made.job.data.size)
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots()
    slots, centres, x = {}, [], 0.0
    for own in roster:
        for i in own:
            slots[int(i)] = x
            x += 1
        centres.append((slots[int(own[0])] + slots[int(own[-1])]) / 2)
        x += 1  # a gap between cells
    cloud = (centres[0] + centres[-1]) / 2
    for d, own in enumerate(roster):
        colour = COLOURS[d % len(COLOURS)]
        axes.plot([cloud, centres[d]], [2, 1], color="0.6", linewidth=1, zorder=1)
        for i in own:
            axes.plot([centres[d], slots[int(i)]], [1, 0], color="0.85", linewidth=0.7, zorder=1)
        area = 12 + 40 * size[own] / size.max()
        axes.scatter([slots[int(i)] for i in own], np.zeros(len(own)), s=area, color=colour, zorder=2)
        axes.scatter([centres[d]], [1], s=160, marker="s", color=colour, zorder=3)
        if len(roster) <= 20:
            label: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8, "backgroundcolor": "white"}
            axes.annotate(f"edge {d}", (centres[d], 1), (9, -14), **label)
    axes.scatter([cloud], [2], s=420, marker="o", color="0.25", zorder=3)
    axes.annotate("cloud", (cloud, 2), (14, -3), textcoords="offset points")
    axes.set_ylim(-0.4, 2.4)
    axes.set_yticks([0, 1, 2], ["clients", "edges", "cloud"])
    axes.set_xticks([])
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_title(f"{len(slots)} clients in {len(roster)} cells", fontsize=10)
    return figure
