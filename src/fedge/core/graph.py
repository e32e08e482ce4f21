"""The graph between edge servers, its mixing matrix P and the spectral gap ζ (SPEC §1, errata S3 and S13)."""

from __future__ import annotations

import networkx as nx
import numpy as np

from fedge.core.topology import Matrix
from fedge.errors import ConfigError, unknown


def _bipartite(n: int) -> nx.Graph:
    return nx.complete_bipartite_graph(n // 2, n - n // 2)


GRAPHS = {
    "ring": nx.cycle_graph,
    "complete": nx.complete_graph,
    "bipartite": _bipartite,
    "star": lambda n: nx.star_graph(n - 1),
    "path": nx.path_graph,
}


def edge_graph(name: str, edges: int) -> nx.Graph:
    """A named graph over `edges` edge servers. `bipartite` is K_{n,n} for an even count: ζ = 1/3."""
    if name not in GRAPHS:
        raise ConfigError(unknown("graph", name, GRAPHS))
    if edges == 1:
        return nx.empty_graph(1)
    graph: nx.Graph = GRAPHS[name](edges)
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    return graph


def mixing_matrix(graph: nx.Graph, cell_weight: Matrix) -> tuple[Matrix, float]:
    """(P, ζ): the best constant-step mixing matrix that keeps the weighted mean, P = I − ε·L·Ω⁻¹ with Ω = diag(m̃).

    Column convention: the new model of cell d is Σ_j w_j P[j,d]. Columns sum to one and P·m̃ = m̃. ε = 2/(λ_1+λ_{D−1})
    and ζ = (λ_1−λ_{D−1})/(λ_1+λ_{D−1}) from the eigenvalues of L·Ω⁻¹, which Ω^{-1/2}·L·Ω^{-1/2} shares. For equal cells
    this is the paper's I − εL. Entries may be negative.
    """
    pieces = [sorted(c) for c in nx.connected_components(graph)]
    if len(pieces) > 1:
        raise ConfigError(f"the edge graph must be connected, but it falls into the components {pieces}")
    count = graph.number_of_nodes()
    if count != len(cell_weight):
        raise ConfigError(f"the edge graph has {count} nodes but there are {len(cell_weight)} cells")
    if count == 1:
        return np.ones((1, 1)), 0.0
    laplacian = nx.laplacian_matrix(graph, nodelist=sorted(graph), weight=None).toarray().astype(np.float64)
    root = 1 / np.sqrt(cell_weight)
    spectrum = np.linalg.eigvalsh(laplacian * root[:, None] * root[None, :])
    smallest, largest = spectrum[1], spectrum[-1]
    epsilon = 2 / (largest + smallest)
    mixing = np.eye(count) - epsilon * laplacian / cell_weight[None, :]
    return mixing, float((largest - smallest) / (largest + smallest))
