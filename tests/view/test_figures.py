"""Figures are looked at through their renderer: no label covers another, and a page holds all marks."""

from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedge.experiment.config import Config
from fedge.studies.curve import Curve
from fedge.studies.recipe import FigureRecipe
from fedge.view import hierarchy, plots
from tests.helpers import small


def drawn(figure):
    """Return the visible texts of a figure with their boxes, after layout."""
    FigureCanvasAgg(figure).draw()
    labels = []
    for axes in figure.axes:
        texts = [*axes.texts, axes.title]
        if axes.axison:
            low, high = sorted(axes.get_xlim())
            texts += [t for t in axes.get_xticklabels() if low <= t.get_position()[0] <= high]
            low, high = sorted(axes.get_ylim())
            texts += [t for t in axes.get_yticklabels() if low <= t.get_position()[1] <= high]
            texts += [axes.xaxis.label, axes.yaxis.label]
        labels += [t for t in texts if t.get_visible() and t.get_text()]
    return [(t.get_text(), t.get_window_extent()) for t in labels]


def assert_readable(figure):
    for (a, box), (b, other) in combinations(drawn(figure), 2):
        assert not box.overlaps(other), f"'{a}' covers '{b}'"


def marks(figure):
    """Count artists, and what collections hold."""
    artists = figure.findobj()
    return len(artists) + sum(len(a.get_paths()) for a in artists if hasattr(a, "get_paths"))


HIERARCHIES = [
    {"clients": 60, "cells": 4},
    {"clients": 30, "cells": 30},
    {"clients": 200, "cells": 40},
    {"clients": 400, "cells": 1},
    {"clients": 401, "cells": 12},
    {"clients": 10_000, "cells": 10},
    {"clients": 10_000, "cells": 40},
    {"clients": 10_000, "cells": 41},
    {"clients": 20_000, "cells": 5_000},
    {"clients": 300, "cells": 100, "algorithm": "sdfeel", "graph": "ring"},
    {"clients": 10_000, "cells": 10, "algorithm": "fedavg"},
]


@pytest.mark.parametrize("keys", HIERARCHIES, ids=lambda keys: "-".join(map(str, keys.values())))
def test_a_page_holds_any_number_of_clients_and_cells(keys):
    made = small(**{"partition": "drawn", "client_samples": 3} | keys)
    for draw in (hierarchy.topology, hierarchy.label_heatmap, hierarchy.edge_graph):
        figure = draw(made)
        if figure is not None:
            assert_readable(figure)
            assert marks(figure) < 2_500


def test_unequal_cells_keep_their_labels_apart():
    """Half of the clients in one cell, and the others one by one: places of labels cannot be counted off evenly."""
    made = small(clients=60, cells=30, partition="drawn", client_samples=3)
    cell = np.concatenate([np.zeros(31, int), np.arange(1, 30)])
    unequal = SimpleNamespace(**vars(made) | {"topology": type(made.topology).of(cell, np.ones(60))})
    assert_readable(hierarchy.label_heatmap(unequal))
    assert_readable(hierarchy.topology(unequal))


def test_no_edges_are_drawn_where_there_are_none():
    levels = {}
    for name in ("fedavg", "hierfavg", "sdfeel"):
        axes = hierarchy.topology(small(algorithm=name, clients=12, cells=4)).axes[0]
        levels[name] = [t.get_text() for t in axes.get_yticklabels()], len(axes.texts)
    assert levels == {
        "fedavg": (["clients", "cloud"], 0),
        "hierfavg": (["clients", "edges", "cloud"], 4),
        "sdfeel": (["clients", "edges"], 4),
    }


def test_a_client_of_few_samples_is_as_visible_as_one_of_many():
    """Dirichlet's clients differ a hundredfold in size: each column's darkest square must be well above nothing."""
    made = small(clients=12, cells=3, partition="dirichlet", concentration=0.1)
    assert made.partition.size.max() > 10 * made.partition.size.min()
    image = hierarchy.label_heatmap(made).axes[1].images[0]
    shade = image.norm(image.get_array())
    assert shade.max(0).min() >= 1 / made.dataset.classes
    np.testing.assert_allclose(image.get_array().sum(0), 1, rtol=1e-6)


def test_columns_of_many_clients_are_their_means():
    made = small(clients=2_000, cells=3, partition="drawn", client_samples=5)
    image = hierarchy.label_heatmap(made).axes[1].images[0].get_array()
    assert image.shape[1] <= hierarchy.MARKS
    np.testing.assert_allclose(image.sum(0), 1, rtol=1e-5)
    counts = made.partition.label_counts(made.dataset.y_train, made.dataset.classes)
    np.testing.assert_allclose(image.mean(1), (counts / 5).mean(0), atol=0.01)  # bins of a cell differ by one client


def test_a_large_graph_is_a_matrix_of_its_links():
    made = small(algorithm="sdfeel", clients=300, cells=300, graph="ring", partition="drawn", client_samples=3)
    image = hierarchy.edge_graph(made).axes[0].images[0].get_array()
    assert image.shape == (hierarchy.PIXELS,) * 2
    block = np.arange(300) * hierarchy.PIXELS // 300
    size = np.bincount(block)
    assert (image * np.outer(size, size)).sum() == pytest.approx(2 * 300)


def a_run(seconds, name="hierfavg"):
    history = [
        {"iteration": 20 * k, "accuracy": 0.9 * k / len(seconds), "loss": 1 / (k + 1), "simulated_seconds": s}
        for k, s in enumerate(seconds)
    ]
    return SimpleNamespace(algorithm=name, history=history, config=Config.of({"algorithm": name}))


@pytest.mark.parametrize("low", [0.02, 70_000])
@pytest.mark.parametrize("ratio", [1, 1.05, 2.5, 9, 1_000, 10**9])
def test_ticks_of_the_time_axis_are_few_and_apart(low, ratio):
    figure = plots.curves([a_run(np.geomspace(low, low * ratio, 5 if ratio > 1 else 1))])
    assert_readable(figure)
    axes = figure.axes[1]
    ticks = [t for t in axes.get_xticks() if axes.get_xlim()[0] <= t <= axes.get_xlim()[1]]
    assert 2 <= len(ticks) <= 7


@example(2.0, 1e12)
@given(st.floats(1e-9, 1e9), st.floats(1.01, 1e12))
def test_log_ticks_are_inside_and_in_order(low, ratio):
    ticks = plots.log_ticks(low, low * ratio)
    assert 2 <= len(ticks) <= 7
    assert low <= ticks[0] < ticks[-1] <= low * ratio
    assert ticks == sorted(set(ticks))


def assert_legends_are_outside(figure):
    FigureCanvasAgg(figure).draw()
    legends = [*figure.legends, *(a.get_legend() for a in figure.axes if a.get_legend())]
    assert legends
    for legend in legends:
        for axes in figure.axes:
            assert not legend.get_window_extent().overlaps(axes.get_window_extent())


def test_no_legend_covers_a_curve():
    assert_legends_are_outside(plots.curves([a_run([1, 5, 20], n) for n in ("fedavg", "hist", "hiersfl", "sdfeel")]))
    assert_legends_are_outside(plots.reproduction(A_FIGURE, curves_of([f"HierSFL, cut {c}" for c in range(8)]), {}))


A_FIGURE = FigureRecipe(
    caption="costs $5 or \\foo$", set="mini", x="simulated_seconds", y="accuracy", points=3, series=[{"label": "a"}]
)


def curves_of(series, variants=("tuned", "printed")):
    """Make a rising curve for each series: three points, two seeds."""
    x = np.array([[0.0, 20_000.0, 40_000.0]] * 2)
    return [
        Curve(v, name, 1, float(n), [0, 1], {"simulated_seconds": x, "accuracy": 0.1 * n + x / 2e5, "round": x})
        for v in variants for n, name in enumerate(series)
    ]  # fmt: skip


def test_labels_of_a_reproduction_are_apart_and_formulas_are_text():
    figure = plots.reproduction(A_FIGURE, curves_of([r"$\frac$", "b"]), {"tuned": "a rate of $3"})
    assert_readable(figure)
    assert figure.axes[0].get_legend().get_texts()[1].get_text() == "b, lr 1"


def test_many_variants_are_drawn_in_rows():
    figure = plots.reproduction(A_FIGURE, curves_of(["a", "b"], "abcd"), {})
    assert_readable(figure)
    assert len(figure.axes) == 4


def test_a_figure_is_the_same_bytes_again_and_follows_no_link(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    for name in ("a.png", "a.pdf", "a.png.part"):
        (tmp_path / name).symlink_to(elsewhere)
    written = []
    for _ in range(2):
        figure = Figure(figsize=(1, 1))
        figure.subplots().plot([1, 2])
        written.append([path.read_bytes() for path in plots.save(figure, tmp_path / "a")])
    assert written[0] == written[1]
    assert elsewhere.read_text() == "mine"
    assert not (tmp_path / "a.png").is_symlink()
