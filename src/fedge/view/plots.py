"""Figures, each written as PNG and PDF."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import matplotlib
import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedge.experiment.build import Experiment
from fedge.runner.result import Result

# Okabe and Ito's colours: told apart by colour-blind readers too; line styles for black and white print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
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
    """Test accuracy against local iterations and simulated seconds, and test loss."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    panels = figure.subplots(1, 3)
    for number, r in enumerate(results):
        look = {"color": COLOURS[number % len(COLOURS)], "linestyle": STYLES[number % len(STYLES)], "linewidth": 1.8}
        mark = {"marker": "o"} if len(r.history) == 1 else {}
        iteration = [row["iteration"] for row in r.history]
        accuracy = [100 * row["accuracy"] for row in r.history]
        panels[0].plot(iteration, accuracy, label=r.algorithm, **look, **mark)
        panels[1].plot([row["simulated_seconds"] for row in r.history], accuracy, **look, **mark)
        panels[2].plot(iteration, [np.nan if row["loss"] is None else row["loss"] for row in r.history], **look, **mark)
    panels[1].set_xscale("log")
    across = ("local iterations", "simulated seconds", "local iterations")
    for axes, x, y in zip(panels, across, ("test accuracy (%)", "test accuracy (%)", "test loss"), strict=True):
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        _tidy(axes)
    panels[0].legend(frameon=False)
    c = results[0].config
    figure.suptitle(
        f"{c.data}, {c.partition}, {c.model}: {c.clients} clients in {c.cells} cells, "
        f"{c.edge_rounds} × {c.local_steps} steps per round",
        fontsize=10,
    )
    return figure


NAMES = {
    "simulated_seconds": "simulated seconds", "iteration": "local iterations", "global_loss": "training loss",
    "accuracy": "test accuracy (%)", "round": "global rounds", "bytes": "sent on all tiers (GB)",
    "client_load": "uploaded by a client (whole models)", "cells": "cells N",
    "load": "load to the target (whole models)",
}  # fmt: skip


VARIANTS = {
    "printed": "as printed",
    "author": "as the authors' code has it",
    "tuned": "tuned learning rate",
    "untuned": "one learning rate",
}


def reproduction(figure: dict[str, Any], table: Path) -> Figure:
    """A paper's figure from its CSV, a panel for each variant; bands are one standard deviation."""
    with table.open() as file:
        rows = list(csv.DictReader(file))
    variants = list(dict.fromkeys(row["variant"] for row in rows))
    drawing = Figure(figsize=(5 * len(variants), 3.8), layout="constrained")
    panels = drawing.subplots(1, len(variants), squeeze=False, sharey="target" in figure)[0]
    factor = 100 if figure["y"] == "accuracy" else 1
    rates = {row["lr"] for row in rows}
    for axes, variant in zip(panels, variants, strict=True):
        series = list(dict.fromkeys(row["series"] for row in rows))
        for number, name in enumerate(series):
            own = [row for row in rows if row["variant"] == variant and row["series"] == name]
            if not own:
                continue
            x, middle, half = (
                np.array([float(row[column]) for row in own])
                for column in (figure["x"], figure["y"], figure["y"] + "_std")
            )
            x = x / 1e9 if figure["x"] == "bytes" else x
            middle, half, colour = factor * middle, factor * half, COLOURS[number % len(COLOURS)]
            label = f"{name}, lr {float(own[0]['lr']):g}" if len(rates) > 1 else name
            style = {"color": colour, "linestyle": STYLES[number % len(STYLES)], "linewidth": 1.8}
            axes.plot(x, middle, label=label, marker="o" if "target" in figure else None, **style)
            axes.fill_between(x, middle - half, middle + half, color=colour, alpha=0.12, linewidth=0)
        axes.set_xlabel(NAMES[figure["x"]])
        if figure["x"] == "cells":
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylabel(NAMES[figure["y"]])
        if factor == 100:
            axes.set_ylim(top=min(axes.get_ylim()[1], 100))
        axes.set_title(VARIANTS.get(variant, variant), fontsize=10)
        axes.legend(frameon=False, fontsize=8)
        _tidy(axes)
    drawing.suptitle(figure["caption"], fontsize=11)
    return drawing


def edge_graph(made: Experiment) -> Figure | None:
    """The graph between edge servers, where they gossip."""
    exchange = made.job.algorithm.gossip
    if exchange is None:
        return None
    figure = Figure(figsize=(4.2, 4.4), layout="constrained")
    axes = figure.subplots()
    places = nx.circular_layout(exchange.graph)
    for a, b in exchange.graph.edges:
        (x0, y0), (x1, y1) = places[a], places[b]
        axes.plot([x0, x1], [y0, y1], color="0.6", linewidth=1.2, zorder=1)
    for d, (x, y) in places.items():
        axes.scatter([x], [y], s=420, color=COLOURS[d % len(COLOURS)], zorder=2)
        axes.annotate(str(d), (x, y), ha="center", va="center", color="white", fontsize=9, zorder=3)
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.margins(0.12)
    axes.set_title(
        f"{exchange.graph.number_of_nodes()} edges, {exchange.graph.number_of_edges()} links: "
        f"ζ = {exchange.zeta:.3g}, α = {exchange.steps}",
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
    cloud, has_cloud = (centres[0] + centres[-1]) / 2, not made.job.algorithm.gossip
    for d, own in enumerate(roster):
        colour = COLOURS[d % len(COLOURS)]
        if has_cloud:
            axes.plot([cloud, centres[d]], [2, 1], color="0.6", linewidth=1, zorder=1)
        for i in own:
            axes.plot([centres[d], slots[int(i)]], [1, 0], color="0.85", linewidth=0.7, zorder=1)
        area = 12 + 40 * size[own] / size.max()
        axes.scatter([slots[int(i)] for i in own], np.zeros(len(own)), s=area, color=colour, zorder=2)
        axes.scatter([centres[d]], [1], s=160, marker="s", color=colour, zorder=3)
        if len(roster) <= 20:
            axes.annotate(str(d), (centres[d], 1), ha="center", va="center", color="white", fontsize=9, zorder=4)
    if has_cloud:
        axes.scatter([cloud], [2], s=420, marker="o", color="0.25", zorder=3)
    axes.set_ylim(-0.4, 1.4 + has_cloud)
    axes.set_yticks([0, 1, 2][: 2 + has_cloud], ["clients", "edges", "cloud"][: 2 + has_cloud])
    axes.set_xticks([])
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_title(f"{len(slots)} clients in {len(roster)} cells", fontsize=10)
    return figure
