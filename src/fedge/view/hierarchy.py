"""Draw a hierarchy: who talks to whom, and who holds which labels.

A page has room for a few hundred marks. Beyond that a picture becomes a summary: it takes no longer to draw for a
million clients than for a hundred.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from fedge.core.contract import Gossip
from fedge.experiment.build import Experiment
from fedge.view.plots import COLOURS, tidy
from fedge.view.terminal import range_of

MARKS = 400  # clients drawn one by one, and columns of a heat map
CELLS = 40  # drawn side by side
NODES = 24  # edges of a graph drawn as dots and lines
PIXELS = 250  # rows and columns of a graph drawn as a matrix
CLASSES = 20  # rows of a heat map that have room for the name of their class
LETTERS = 20  # of such a name
BY_TURNS = COLOURS[:2]  # , where there are more cells than colours

Integers = NDArray[Any]


# Who talks to whom


def topology(made: Experiment) -> Figure:
    """Draw the tree of cloud, edges and clients; a client's area follows its number of samples.

    Many clients of a cell are drawn as a wedge with their number, many cells as one wedge and two histograms.
    Cells that train the same submodel have one colour.
    """
    algorithm, samples = made.job.algorithm, np.asarray(made.job.data.size)
    cell = made.topology.cell if algorithm.has_edges else np.zeros(len(samples), int)
    per_cell = np.bincount(cell)
    cells, most = len(per_cell), int(per_cell.max())
    levels = ["clients", "edges", "cloud"] if algorithm.has_edges else ["clients", "cloud"]
    levels = levels[:2] if algorithm.gossip else levels
    inside = f" in {cells:,} cells" if "edges" in levels else ", no edges"
    title = f"{len(samples):,} clients{inside}, {range_of(samples)} samples each"
    title += f"; {range_of(per_cell)} clients in a cell" if cells > CELLS else ""
    groups = range(cells) if algorithm.parts is None else algorithm.parts
    title += "" if algorithm.parts is None else f"; {groups[-1] + 1} submodels"
    if cells > CELLS:
        return _many_cells(levels, per_cell, samples, title)
    one_by_one = cells * most <= MARKS
    width = float(np.clip(max(0.3 * cells, 0.09 * cells * most if one_by_one else 0), 9, 14))
    figure = Figure(figsize=(width, 3.6), layout="constrained")
    axes = figure.subplots()
    tree = _Tree(axes, np.arange(cells) + 0.5, [_shade(n, groups[-1] + 1) for n in groups], points=60 * width / cells)
    tree.parents(levels)
    if one_by_one:
        tree.clients(cell, per_cell, samples)
    else:
        tree.wedges(per_cell)
    axes.set_title(title, fontsize=10)
    return figure


def _shade(cell: int, cells: int) -> str:
    return COLOURS[cell] if cells <= len(COLOURS) else BY_TURNS[cell % 2]


class _Tree(NamedTuple):
    """These are the axes of a tree, with a place and a colour for each cell; a cell is so many points wide."""

    axes: Axes
    centres: NDArray[Any]
    colours: list[str]
    points: float

    def parents(self, levels: list[str]) -> None:
        """Draw the cloud and the edges, as far as there are any, and the names of the levels."""
        axes, middle, top = self.axes, len(self.centres) / 2, len(levels) - 1
        if "edges" in levels:
            axes.scatter(self.centres, np.ones_like(self.centres), s=160, marker="s", c=self.colours, zorder=3)
            for d, x in enumerate(self.centres):
                axes.annotate(str(d), (x, 1), ha="center", va="center", color="white", fontsize=8, zorder=4)
        if "cloud" in levels:
            axes.scatter([middle], [top], s=420, color="0.25", zorder=3)
            if "edges" in levels:
                lines = [[(middle, top), (x, 1)] for x in self.centres]
                axes.add_collection(LineCollection(lines, colors="0.6", linewidths=1, zorder=1))
        axes.set_xlim(0, len(self.centres))
        axes.set_ylim(-0.45, top + 0.4)
        axes.set_yticks(range(len(levels)), levels)
        axes.set_xticks([])
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)

    def clients(self, cell: Integers, per_cell: Integers, samples: Integers) -> None:
        """Draw every client below its edge."""
        order = np.argsort(cell, kind="stable")
        own = cell[order]
        rank = np.arange(len(own)) - (np.cumsum(per_cell) - per_cell)[own]
        step = 0.84 / per_cell.max()
        x = self.centres[own] + (rank - (per_cell[own] - 1) / 2) * step
        largest = float(np.clip((self.points * step) ** 2, 3, 50))
        area = largest * (0.25 + 0.75 * samples[order] / samples.max())
        lines = [[(self.centres[d], 1), (at, 0)] for d, at in zip(own, x, strict=True)]
        self.axes.add_collection(LineCollection(lines, colors="0.85", linewidths=0.7, zorder=1))
        self.axes.scatter(x, np.zeros(len(x)), s=area, c=[self.colours[d] for d in own], zorder=2)

    def wedges(self, per_cell: Integers) -> None:
        """Draw a wedge for the clients of each cell, as wide as they are many, with their number."""
        half = 0.42 * per_cell / per_cell.max()
        corners = [[(x, 1), (x - h, 0), (x + h, 0)] for x, h in zip(self.centres, half, strict=True)]
        self.axes.add_collection(PolyCollection(corners, facecolors=self.colours, alpha=0.5, zorder=1))
        rotation = 90 if self.points < 6 * len(f"{per_cell.max():,}") else 0
        for x, count in zip(self.centres, per_cell, strict=True):
            self.axes.text(x, -0.06, f"{count:,}", ha="center", va="top", fontsize=8, rotation=rotation)


def _many_cells(levels: list[str], per_cell: Integers, samples: Integers, title: str) -> Figure:
    """Draw one wedge for all of them, and how large cells and clients are where they differ."""
    both = (per_cell, "clients in a cell", "cells"), (samples, "samples of a client", "clients")
    unequal = [one for one in both if one[0].min() < one[0].max()]
    figure = Figure(figsize=(3.6 + 3.2 * len(unequal), 3.4), layout="constrained")
    wedge, *histograms = figure.subplots(1, 1 + len(unequal), squeeze=False)[0]
    names = {"cloud": "cloud", "edges": f"{len(per_cell):,} edges", "clients": f"{len(samples):,} clients"}
    for height, level in enumerate(levels):
        wedge.text(0, height, names[level], ha="center", va="center", bbox={"fc": "white", "ec": "0.6", "pad": 6})
    top = len(levels) - 1
    apex = 0.0 if "cloud" in levels else 0.6  # without a cloud the edges are as many at the top as anywhere
    corners = [[(-apex, top), (apex, top), (1, 0), (-1, 0)]]
    wedge.add_collection(PolyCollection(corners, facecolors=COLOURS[0], alpha=0.25, zorder=0))
    wedge.set(xlim=(-1.1, 1.1), ylim=(-0.4, top + 0.4))
    wedge.set_axis_off()
    for axes, (values, across, up) in zip(histograms, unequal, strict=True):
        low, high = int(values.min()), int(values.max())
        bins = np.linspace(low, high, 31) if high - low > 30 else np.arange(low, high + 2) - 0.5
        counts, ends = np.histogram(values, bins)
        axes.stairs(counts, ends, fill=True, color=COLOURS[0], alpha=0.7)
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        tidy(axes)
    figure.suptitle(title, fontsize=10)
    return figure


# Who holds which labels


class _Columns(NamedTuple):
    """These columns make a heat map over clients: where each begins in `order`, which cell it shows, and what it is."""

    order: Integers  # clients, cell by cell
    start: Integers
    cell: Integers
    says: str


def _columns(cell: Integers, commonest: Integers) -> _Columns:
    """Make a column for each client; for several of a cell or for several cells, where there are too many."""
    clients, per_cell = len(cell), np.bincount(cell)
    cells = len(per_cell)
    if clients <= MARKS:
        order = np.argsort(cell, kind="stable")
        return _Columns(order, np.arange(clients), cell[order], "clients, cell by cell")
    order = np.lexsort((commonest, cell))
    own = cell[order]
    if cells > MARKS:
        column = own * MARKS // cells
        says = f"cells; a column is the mean over the clients of {-(-cells // MARKS):,} cells or fewer"
    else:
        each = np.minimum(per_cell, MARKS // cells)
        begin = np.cumsum(per_cell) - per_cell
        rank = np.arange(clients) - begin[own]
        column = (np.cumsum(each) - each)[own] + rank * each[own] // per_cell[own]
        most = int((-(-per_cell // each)).max())
        says = f"clients, cell by cell, by their commonest class; a column is the mean of {most:,} or fewer"
    start = np.flatnonzero(np.diff(column, prepend=-1))
    return _Columns(order, start, own[start], says)


def label_heatmap(made: Experiment) -> Figure:
    """Draw what share of its samples each client has of each class, and above it how many samples they are."""
    (label, classes, names), samples = made.dataset.strata, made.partition.size
    counts = made.partition.label_counts(label, classes)
    order, start, cell, says = _columns(made.topology.cell, counts.argmax(1))
    width = float(np.clip(0.11 * len(start), 6, 14))
    figure = Figure(figsize=(width, 4), layout="constrained")
    bars, axes = figure.subplots(2, 1, sharex=True, height_ratios=(1, 4))
    clients = np.diff(start, append=len(order))
    share = (counts / samples[:, None]).astype(np.float32)
    mean_share = np.add.reduceat(share[order], start) / clients[:, None]
    darkest = max(mean_share.max(), min(1, 3 / classes))  # means of many clients are all alike, and not all dark
    image = axes.imshow(mean_share.T, aspect="auto", cmap="Blues", interpolation="nearest", vmin=0, vmax=darkest)
    mean_samples = np.add.reduceat(samples[order], start) / clients
    bars.stairs(mean_samples, np.arange(len(start) + 1) - 0.5, fill=True, color="0.6")
    bars.set_ylabel("samples")
    bars.set_yticks([0, mean_samples.max()], ["0", f"{mean_samples.max():,.0f}"])
    bars.tick_params(bottom=False)
    bars.spines[["top", "right"]].set_visible(False)
    begins = np.flatnonzero(np.diff(cell, prepend=-1))  # columns at which another cell begins
    if len(begins) <= CELLS:
        axes.vlines(begins[1:] - 0.5, -0.5, classes - 0.5, color="0.3", linewidth=0.8)
    middles = (begins + np.append(begins[1:], len(cell)) - 1) / 2
    letters = len(f"cell {cell[-1]}")
    shown = _choose_apart(middles, (5 * letters + 8) * len(cell) / (56 * width))
    axes.set_xticks(middles[shown], [f"cell {cell[begins[d]]}" for d in shown], fontsize=8)
    axes.set_xlabel(says)
    axes.yaxis.set_major_locator(MaxNLocator(min(10, classes), integer=True))
    if names and classes <= CLASSES:
        axes.set_yticks(range(classes), [_short(name) for name in names], fontsize=8)
    axes.set_ylabel("class" if made.dataset.classes else "target")
    kinds = "classes" if made.dataset.classes else "targets"
    data, partition = (Path(name).name.replace("$", r"\$") for name in (made.config.data, made.config.partition))
    bars.set_title(f"{data}, {partition}: samples of each client, and their {kinds}", fontsize=10)
    bar = figure.colorbar(image, ax=[bars, axes], label="share of the client's samples")
    bar.ax.yaxis.set_major_formatter(PercentFormatter(1))
    return figure


def _short(name: str) -> str:
    """Cut a class's name to what stands beside an axis, and mark it as one that holds no formula."""
    return (name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…").replace("$", r"\$")


def _choose_apart(places: NDArray[np.float64], least: float) -> list[int]:
    """Choose which of these places, in ascending order, to label so that neighbours are `least` apart."""
    chosen = [0]
    for n in range(1, len(places)):
        if places[n] - places[chosen[-1]] >= least:
            chosen.append(n)
    return chosen


# The graph between edges


def edge_graph(made: Experiment) -> Figure | None:
    """Draw the graph between edge servers, as a matrix where it is large; None where they do not gossip."""
    exchange = made.job.algorithm.gossip
    if exchange is None:
        return None
    nodes, links = exchange.graph.number_of_nodes(), exchange.graph.number_of_edges()
    figure = Figure(figsize=(4.6, 4.8), layout="constrained")
    axes = figure.subplots()
    title = f"{nodes:,} edges, {links:,} links: ζ = {exchange.zeta:.3g}, α = {exchange.steps}"
    if nodes <= NODES:
        angle = 2 * np.pi * np.arange(nodes) / nodes
        places = np.stack([np.cos(angle), np.sin(angle)], 1)
        lines = [places[[a, b]] for a, b in exchange.graph.edges]
        axes.add_collection(LineCollection(lines, colors="0.6", linewidths=1.2, zorder=1))
        axes.scatter(places[:, 0], places[:, 1], s=min(420, 6000 / nodes), color=COLOURS[0], zorder=2)
        for d, place in enumerate(places):
            axes.annotate(str(d), place, ha="center", va="center", color="white", fontsize=9, zorder=3)
        axes.set_aspect("equal")
        axes.set_axis_off()
        axes.margins(0.12)
    else:
        degree = np.array([d for _, d in sorted(exchange.graph.degree)])
        title += f"\n{range_of(degree)} links at an edge"
        density = _link_density(exchange)
        image = axes.imshow(
            density, cmap="Blues", extent=(-0.5, nodes - 0.5, nodes - 0.5, -0.5), interpolation="nearest"
        )
        axes.set_xlabel("edge")
        axes.set_ylabel("edge")
        if nodes > PIXELS:
            figure.colorbar(image, ax=axes, shrink=0.7, label="share of pairs that are linked")
    axes.set_title(title, fontsize=10)
    return figure


def _link_density(exchange: Gossip) -> NDArray[np.float64]:
    """Count the share of pairs of edges that are linked, for blocks of edges."""
    nodes = exchange.graph.number_of_nodes()
    side = min(nodes, PIXELS)
    block = np.arange(nodes) * side // nodes
    linked = np.zeros((side, side))
    for node, neighbours in exchange.graph.adjacency():
        others = np.fromiter(neighbours, np.int64, len(neighbours))
        linked[block[node]] += np.bincount(block[others], minlength=side)
    size = np.bincount(block)
    return linked / np.outer(size, size)
