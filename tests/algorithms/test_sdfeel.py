"""Gossip over a large sparse graph, neighbour by neighbour, is the same operator."""

import sys

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.algorithms.sdfeel import neighbours
from fedge.core.graph import mixing_matrix
from tests.helpers import by_operator, distance, small, train

module = sys.modules[neighbours.__module__]  # the package has a function of this name


@given(st.integers(2, 12), st.floats(0.1, 1), st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_the_table_is_the_matrix_without_its_zeros(edges, density, seed):
    graph = nx.compose(nx.path_graph(edges), nx.gnp_random_graph(edges, density, seed))
    mixing, _ = mixing_matrix(graph, np.random.default_rng(seed).dirichlet(np.ones(edges)))
    who, share = neighbours(mixing)
    assert who.shape[0] == (mixing != 0).sum(0).max()
    rebuilt = np.zeros_like(mixing)
    for row, weights in zip(who, share, strict=True):
        rebuilt[row, np.arange(edges)] += weights
    np.testing.assert_array_equal(rebuilt, mixing)


@pytest.mark.parametrize("engine", ["vectorised", "reference"])
@pytest.mark.parametrize("graph", ["ring", "star"])
def test_neighbour_by_neighbour_is_the_operator(engine, graph, monkeypatch):
    monkeypatch.setattr(module, "SPARSE", 0)  # however few edges there are
    with jax.enable_x64(True):
        made = small(algorithm="sdfeel", clients=8, cells=4, graph=graph, gossip=3, dtype="float64", engine=engine)
        assert isinstance(made.job.algorithm.constants, tuple)
        assert distance(train(made)[0], by_operator(made)) < 1e-12


def test_a_graph_of_many_edges_is_announced(monkeypatch, caplog):
    monkeypatch.setattr("fedge.experiment.build.MANY_EDGES", 3)
    with caplog.at_level("INFO", "fedge"):
        small(algorithm="sdfeel", clients=8, cells=3, graph="ring")
        assert not caplog.text
        small(algorithm="sdfeel", clients=8, cells=4, graph="ring")
    assert "making the graph between 4 edges and its mixing matrix" in caplog.text


def test_a_thousand_edges_on_a_ring_make_no_dense_product():
    """The compiled exchange multiplies α · 3 · D · parameters numbers, not D² · parameters."""
    mixing, _ = mixing_matrix(nx.cycle_graph(1000), np.full(1000, 1e-3))
    table = neighbours(mixing)
    assert table[0].shape == (3, 1000)
    models = {"w": jnp.asarray(np.random.default_rng(0).normal(size=(1000, 5)), jnp.float32)}
    program = jax.jit(lambda m, t: module._gossip(t, 2, m)).lower(models, jax.tree.map(jnp.asarray, table)).compile()
    expected = np.linalg.matrix_power(mixing, 2).T @ np.asarray(models["w"])
    np.testing.assert_allclose(program(models, jax.tree.map(jnp.asarray, table))["w"], expected, atol=1e-6)
    assert "dot(" not in program.as_text()
