"""Make the graph between edge servers, its mixing matrix P and its contraction factor ζ.

Import this where there is a graph: networkx takes a tenth of a second and 10 MB.
"""

from __future__ import annotations

import re

import networkx as nx
import numpy as np

from fedge.core.keys import Purpose, host_rng
from fedge.core.memory import require_memory
from fedge.core.topology import GRAPHS, Matrix
from fedge.errors import ConfigError, brief, unknown


def _bipartite(n: int) -> nx.Graph:
    return nx.complete_bipartite_graph(n // 2, n - n // 2)


def _grid(n: int) -> nx.Graph:
    """Make the most square grid with n nodes."""
    rows = max(r for r in range(1, int(n**0.5) + 1) if n % r == 0)
    return nx.convert_node_labels_to_integers(nx.grid_2d_graph(rows, n // rows), ordering="sorted")


BUILD = {
    "ring": nx.cycle_graph,
    "complete": nx.complete_graph,
    "bipartite": _bipartite,
    "star": lambda n: nx.star_graph(n - 1),
    "path": nx.path_graph,
    "grid": _grid,
}
TRIES = 1000
LINK = 510  # bytes of one link: 140 in networkx, the rest for both of its directions in the ledger and the clock
MATRICES = 5  # of edges × edges in float64 that lie in memory at once while P and its spectrum are made


def edge_graph(name: str, edges: int, density: float = 0.4, seed: int = 0) -> nx.Graph:
    """Make a graph over `edges` edge servers from a name, or its links written out as "0-1 1-2 2-0".

    `bipartite` is K_{n,n} for an even count (ζ = 1/3). `erdos_renyi` links each pair with probability `density`, drawn
    from the seed until the graph is connected.
    """
    require_memory(
        f"graph={name[:20]} with cells={edges}",
        LINK * link_count(name, edges, density) + MATRICES * 8 * edges**2,
        "take fewer cells",
    )
    if any(c.isdigit() for c in name):
        graph = parse_links(name)
    elif name == "erdos_renyi":
        graph = _erdos_renyi(edges, density, seed)
    elif name in BUILD:
        graph = nx.empty_graph(1) if edges == 1 else BUILD[name](edges)
        graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    else:
        raise ConfigError(unknown("graph", name, GRAPHS) + "; or a file with one link such as '0 1' per line")
    if not set(graph) <= set(range(edges)):
        raise ConfigError(f"the edge graph links {sorted(graph)}, but with cells={edges} servers are 0 to {edges - 1}")
    graph.add_nodes_from(range(edges))
    return require_connected(graph)


def link_count(name: str, edges: int, density: float) -> float:
    """Estimate the links of such a graph; 0 where they are few or the name is unknown."""
    every = edges * (edges - 1) / 2
    return {"complete": every, "bipartite": edges**2 / 4, "erdos_renyi": density * every}.get(name, 0)


def require_connected(graph: nx.Graph) -> nx.Graph:
    pieces = [sorted(c) for c in nx.connected_components(graph)]
    if len(pieces) > 1:
        raise ConfigError(f"the edge graph must be connected, but it falls into the components {pieces}")
    return graph


def _erdos_renyi(edges: int, density: float, seed: int) -> nx.Graph:
    rng = host_rng(seed, Purpose.GRAPH)
    for _ in range(TRIES):
        linked = np.triu(rng.random((edges, edges)) < density, 1)
        graph = nx.from_numpy_array(linked)
        if nx.is_connected(graph):
            return nx.Graph(graph.edges) if edges > 1 else nx.empty_graph(1)
    raise ConfigError(f"no connected graph in {TRIES} draws with density={density} and {edges} cells; raise density")


def parse_links(text: str) -> nx.Graph:
    """Read "0-1 1-2"; self-links and repeated ones carry no information and are refused."""
    graph = nx.Graph()
    for link in text.replace(",", " ").split():
        ends = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,9})", link)
        if ends is None:
            raise ConfigError(f"'{brief(link)}' is not a link between two edge servers; write links as 0-1 1-2")
        a, b = int(ends[1]), int(ends[2])
        if a == b or graph.has_edge(a, b):
            raise ConfigError(f"the link {link} is given twice or joins a server to itself; leave it out")
        graph.add_edge(a, b)
    return graph


def write_links(graph: nx.Graph) -> str:
    return " ".join(f"{a}-{b}" for a, b in sorted(tuple(sorted(link)) for link in graph.edges))


def mixing_matrix(graph: nx.Graph, cell_weight: Matrix) -> tuple[Matrix, float]:
    """Return (P, ζ): the best constant-step mixing matrix that keeps the weighted mean, P = I − ε·L·Ω⁻¹, Ω = diag(m̃).

    Column convention: the new model of cell d is Σ_j w_j P[j,d]. Columns sum to one and P·m̃ = m̃. ε = 2/(λ_1+λ_{D−1})
    and ζ = (λ_1−λ_{D−1})/(λ_1+λ_{D−1}) from the eigenvalues of L·Ω⁻¹, which Ω^{-1/2}·L·Ω^{-1/2} shares. For equal cells
    this is the paper's I − εL. Entries may be negative.
    """
    count = require_connected(graph).number_of_nodes()
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
