"""The averaging operators obey laws, on every topology drawn: they keep the weighted mean and compose as they must."""

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.algorithms import ALGORITHMS
from fedge.core.contract import Round, Stack
from fedge.core.graph import BUILD, edge_graph, mixing_matrix
from fedge.core.keys import root
from fedge.core.topology import GRAPHS, Topology
from fedge.errors import ConfigError
from fedge.experiment.build import make_algorithm
from fedge.experiment.config import Config
from fedge.models import make
from tests.helpers import assert_mean_preserved, small

TIGHT = {"atol": 1e-12, "rtol": 0}


@st.composite
def topologies(draw, max_cells=6):
    cells = draw(st.integers(1, max_cells))
    extra = draw(st.lists(st.integers(0, cells - 1), max_size=8))
    cell = draw(st.permutations([*range(cells), *extra]))
    weight = draw(st.lists(st.integers(1, 1000), min_size=len(cell), max_size=len(cell)))
    return Topology.of(cell, weight)


@st.composite
def connected(draw, cells):
    """Draw a random tree plus random edges."""
    graph = nx.empty_graph(cells)
    graph.add_edges_from((d, draw(st.integers(0, d - 1))) for d in range(1, cells))
    pairs = [(a, b) for a in range(cells) for b in range(a)]
    graph.add_edges_from(draw(st.lists(st.sampled_from(pairs), max_size=6)) if pairs else [])
    return graph


@given(topologies(), st.data(), st.integers(0, 4))
def test_operators(topology, data, steps):
    """Columns sum to one, T·m = m, H1² = H1, H1H2 = H2H1 = H2, TA = AT = A."""
    mixing, _ = mixing_matrix(data.draw(connected(topology.cells)), topology.cell_weight)
    m, h1, a = topology.weight, topology.edge_operator, topology.cloud_operator
    h2 = topology.gossip_operator(mixing, steps)
    for t in (topology.identity, h1, a, h2):
        np.testing.assert_allclose(t.sum(0), 1, **TIGHT)
        np.testing.assert_allclose(t @ m, m, **TIGHT)
        np.testing.assert_allclose(t @ a, a, **TIGHT)
        np.testing.assert_allclose(a @ t, a, **TIGHT)
    np.testing.assert_allclose(h1 @ h1, h1, **TIGHT)
    np.testing.assert_allclose(h1 @ h2, h2, **TIGHT)
    np.testing.assert_allclose(h2 @ h1, h2, **TIGHT)


def test_mixing_as_printed_is_equation_6_and_loses_the_mean_of_unequal_cells():
    """(6) to the letter, P = I − εL with ε = 2/(λ_1 + λ_{D−1}): on a path of three, λ = 0, 1, 3, so ε = 1/2."""
    made = small(algorithm="sdfeel", graph="path", mixing="printed", gossip=2, local_steps=1, edge_rounds=1)
    printed = np.array([[0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]])
    np.testing.assert_allclose(made.job.algorithm.gossip.mixing, printed, **TIGHT)
    assert made.job.algorithm.gossip.zeta == pytest.approx(0.5)
    share = made.topology.cell_weight
    assert np.ptp(share) > 0.05
    assert np.abs(printed @ share - share).max() > 0.01
    with jax.enable_x64(True):
        algorithm = made.job.algorithm
        edges = {"w": jnp.arange(6.0).reshape(3, 2) ** 2}
        now = Round(jnp.int32(0), root(0), jnp.asarray(share), jax.tree.map(jnp.asarray, algorithm.constants))
        merged = algorithm.merge(edges, (Stack((0, 1, 2), edges),), now)["w"]
        np.testing.assert_allclose(merged.T, np.asarray(edges["w"]).T @ printed @ printed, **TIGHT)
        one = np.eye(made.topology.clients)
        stated = algorithm.operator(1, "w")
        np.testing.assert_allclose(one @ stated, made.topology.gossip_operator(printed, 2), **TIGHT)


@given(connected(5))
def test_mixing_as_printed_is_the_weighted_one_for_equal_cells(graph):
    """The one is computed here from the Laplacian's own eigenvalues, the other from those of L·Ω⁻¹."""
    laplacian = nx.laplacian_matrix(graph, nodelist=range(5)).toarray().astype(float)
    values = np.linalg.eigvalsh(laplacian)
    weighted, zeta = mixing_matrix(graph, np.full(5, 0.2))
    np.testing.assert_allclose(weighted, np.eye(5) - 2 / (values[1] + values[-1]) * laplacian, **TIGHT)
    assert zeta == pytest.approx((values[-1] - values[1]) / (values[-1] + values[1]), abs=1e-12)


@given(
    topologies(),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(sorted(ALGORITHMS)),
)
def test_every_algorithm_preserves_the_mean(topology, local_steps, edge_rounds, name):
    knobs = {"local_steps": local_steps, "edge_rounds": edge_rounds}
    config = Config(algorithm=name, cells=topology.cells, clients=topology.clients, **knobs)
    model = make("mlp", (2, 2, 1), 2, hidden=4)
    algorithm = None if topology.cells > 4 else make_algorithm(config, topology, model)  # 4 units to share out
    if algorithm is not None and algorithm.operator is not None:
        assert_mean_preserved(algorithm)


@given(topologies(), st.data())
def test_mixing_keeps_the_weighted_mean_and_contracts_at_zeta(topology, data):
    """P·m̃ = m̃, 1ᵀP = 1ᵀ, and ‖P − m̃1ᵀ‖ in the weighted norm is exactly ζ."""
    cell_weight = topology.cell_weight
    mixing, zeta = mixing_matrix(data.draw(connected(topology.cells)), cell_weight)
    np.testing.assert_allclose(mixing @ cell_weight, cell_weight, **TIGHT)
    np.testing.assert_allclose(mixing.sum(0), 1, **TIGHT)
    root = np.sqrt(cell_weight)
    deviation = (mixing - np.outer(cell_weight, np.ones(len(root)))) * root[None, :] / root[:, None]
    assert np.linalg.norm(deviation, 2) == pytest.approx(zeta, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "edges", "zeta"),
    [("ring", 6, 0.6), ("bipartite", 6, 1 / 3), ("complete", 6, 0), ("bipartite", 10, 1 / 3), ("ring", 10, 0.8257)],
)
def test_zeta_of_known_graphs(name, edges, zeta):
    _, found = mixing_matrix(edge_graph(name, edges), np.full(edges, 1 / edges))
    assert found == pytest.approx(zeta, abs=5e-5 if zeta == 0.8257 else 1e-12)


def test_each_named_graph_can_be_made():
    assert (*BUILD, "erdos_renyi") == GRAPHS


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("edges", [1, 2, 5, 6])
def test_named_graphs_are_connected_and_simple(name, edges):
    graph = edge_graph(name, edges)
    assert graph.number_of_nodes() == edges
    assert nx.is_connected(graph)
    assert nx.number_of_selfloops(graph) == 0


def test_links_written_out():
    assert sorted(edge_graph("0-1 1-2,2-0", 3).edges) == [(0, 1), (0, 2), (1, 2)]
    for text, match in [
        ("0-1 1-0", "given twice"), ("0-0", "itself"), ("0-x1", "not a link"), ("0-3", "servers are 0 to 2"),
        ("0-1", r"components \[\[0, 1\], \[2\]\]"), ("0-1 2-3", r"components \[\[0, 1\], \[2, 3\]\]"),
        ("rng", "did you mean 'ring'"),
    ]:  # fmt: skip
        with pytest.raises(ConfigError, match=match):
            edge_graph(text, 4 if "2-3" in text else 3)


def test_erdos_renyi_follows_its_seed_and_is_connected_or_refused():
    one, same, other = (edge_graph("erdos_renyi", 8, 0.4, s) for s in (1, 1, 2))
    assert set(one.edges) == set(same.edges) != set(other.edges)
    with pytest.raises(ConfigError, match="raise density"):
        edge_graph("erdos_renyi", 30, 0.01, 0)


def test_negative_entries_where_the_spectrum_asks_for_them():
    """The star's best constant step overshoots at the hub."""
    mixing, _ = mixing_matrix(edge_graph("star", 8), np.full(8, 1 / 8))
    assert mixing.min() < 0


def test_a_disconnected_graph_is_refused_with_its_components():
    graph = nx.Graph([(0, 1), (2, 3)])
    with pytest.raises(ConfigError, match=r"\[\[0, 1\], \[2, 3\]\]"):
        mixing_matrix(graph, np.full(4, 0.25))


@pytest.mark.parametrize(("cell", "weight"), [([0, 2], [1, 1]), ([], []), ([0, 1], [1, 0]), ([0], [1, 2])])
def test_impossible_topologies_are_refused(cell, weight):
    with pytest.raises(ConfigError):
        Topology.of(cell, weight)


def test_weights_of_the_papers():
    topology = Topology.of([0, 0, 0, 1], [1, 2, 3, 4])
    np.testing.assert_allclose(topology.weight, [0.1, 0.2, 0.3, 0.4])
    np.testing.assert_allclose(topology.uniform().weight, [0.25] * 4)
    np.testing.assert_allclose(topology.uniform_cells().weight, [1 / 6, 1 / 6, 1 / 6, 1 / 2])
    assert topology.one_cell().cells == 1


def test_running_variances_are_never_mixed_with_negative_weights():
    """On a star P has negative entries: mixed with it, positive variances could become negative."""
    made = small(algorithm="sdfeel", model="shallow", graph="star", clients=6, cells=6)
    algorithm = made.job.algorithm
    assert algorithm.gossip.mixing.min() < 0
    path = "stem_norm/var"
    rng = np.random.default_rng(0)
    edges = {p: np.asarray(w) for p, w in algorithm.start(made.model.initialise(made.job.key)).items()}
    edges[path] = np.exp(0.7 * rng.standard_normal(edges[path].shape)).astype(np.float32)
    share, power = jnp.asarray(algorithm.topology.cell_weight), jnp.asarray(algorithm.constants)
    now = Round(jnp.int32(0), made.job.key, share, power)
    after = algorithm.merge(edges, (Stack(tuple(range(6)), edges),), now)
    expected = np.tensordot(algorithm.topology.cell_weight, edges[path], 1)
    np.testing.assert_allclose(after[path], np.tile(expected, (6, 1)), rtol=1e-6)
    assert_mean_preserved(algorithm, path)
