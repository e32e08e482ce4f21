"""SD-FEEL (Sun, Shao, Mao, Zhang: Semi-Decentralized Federated Edge Learning for Fast Convergence on Non-IID Data).

    w_i ← w_i − η g_i                                     every iteration
    w_d ← Σ_{i∈d} (m_i/m̃_d) w_i,  m_i = |S_i|/|S|         at the edge every τ1, then back to its clients
    w_d ← Σ_j w_j P[j,d], α times                         between edges every τ1·τ2, after the edge average; no cloud

    T_k = H2 = H'·P^α·H'' if τ1τ2 | k;  H1 if τ1 | k;  else I

Symbols: τ1 = local_steps, τ2 = edge_rounds, α = gossip, G = graph, ζ = the second largest |eigenvalue| of P.

Departures from the paper, and why:
- k counts completed iterations from 1, as in Algorithm 1; equations (11)–(12) select T by k and would gossip at step 0.
- The paper's P = I − εL keeps the weighted mean only if all cells hold equally much data. `mixing_matrix` weights the
  Laplacian by the cells' data, P = I − ε·L·Ω⁻¹, which equals the paper's P for equal cells.
- `mixing=printed` is (6) to the letter, P = I − εL for unequal cells too; the mean of all models then drifts with every
  exchange (P·m̃ ≠ m̃), away from the objective (1).
- `mixing=mean` uses P = m̃·1ᵀ on a complete graph: exactly HierFAVG, also for unequal cells.
- Where P has negative entries, BatchNorm's running variances are averaged over all edges instead: mixed with P they
  could become negative.
- The tested model is the consensus u = Σ m̃_d w_d; the edges' own models are tested beside it (the paper does not say
  which it tests).
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray
from pydantic import Field

from fedge.core import tree
from fedge.core.contract import Algorithm, Gossip, Knobs, ModelDescription, Round, Stack
from fedge.core.memory import require_memory, state_memory
from fedge.core.schedule import Schedule
from fedge.core.topology import GRAPHS, Matrix, Topology
from fedge.core.tree import Weights
from fedge.errors import ConfigError


def sdfeel(
    knobs: Knobs, topology: Topology, model: ModelDescription, *,
    gossip: Annotated[int, Field(ge=0, le=10**5, description="α: exchanges between edges per inter-edge step")] = 1,
    graph: Annotated[str, Field(
        description=f"between edges: {', '.join(GRAPHS)}, links such as '0-1 1-2', or a file of them"
    )] = "bipartite",
    density: Annotated[float, Field(gt=0, le=1, description="link probability of graph=erdos_renyi")] = 0.4,
    mixing: Annotated[Literal["optimal", "printed", "mean"], Field(
        description="best constant mixing matrix of the graph, weighted by data or as printed; or the mean"
    )] = "optimal",
) -> Algorithm:  # fmt: skip
    schedule = Schedule(knobs.local_steps, knobs.edge_rounds)
    every_cell = tuple(range(topology.cells))
    from fedge.core.graph import edge_graph, mixing_matrix

    numbers = sum(math.prod(w.shape) for w in model.template.values())
    require_memory(
        f"sdfeel with cells={topology.cells} and a model of {numbers:,} numbers, before and after a round,",
        2 * topology.cells * numbers * 4,
        "take fewer cells or a smaller model",
        state_memory(),
    )
    links = edge_graph(graph, topology.cells, density, knobs.seed)
    equal = np.full(topology.cells, 1 / topology.cells)
    p, zeta = mixing_matrix(links, equal if mixing == "printed" else topology.cell_weight)
    if mixing == "mean":
        if links.number_of_edges() != topology.cells * (topology.cells - 1) // 2:
            raise ConfigError("mixing=mean averages over all edges at once, so it needs graph=complete")
        p, zeta = np.outer(topology.cell_weight, np.ones(topology.cells)), 0.0
    table = neighbours(p)
    sparse = SPARSE * gossip * table[0].shape[0] <= topology.cells  # else α exchanges in one product of matrices
    averaged = model.variances if p.min() < 0 else frozenset()

    def start(w: Weights) -> Weights:
        return tree.repeat(w, topology.cells)

    def deal(edges: Weights, now: Round) -> tuple[Stack, ...]:
        return (Stack(every_cell, edges),)

    def merge(edges: Weights, stacks: tuple[Stack, ...], now: Round) -> Weights:
        mixed = (
            _gossip(now.constants, gossip, stacks[0].weights)
            if sparse
            else tree.weighted_sum(now.constants, stacks[0].weights)
        )
        kept = {path: stacks[0].weights[path] for path in averaged}
        return mixed | tree.repeat(tree.weighted_sum(now.cell_weight, kept), topology.cells)

    def consensus(edges: Weights, cell_weight: Array) -> Weights:
        return tree.weighted_sum(cell_weight, edges)

    def operator(k: int, path: str) -> Matrix:
        if schedule.is_global(k):
            return topology.cloud_operator if path in averaged else topology.gossip_operator(p, gossip)
        return topology.edge_operator if schedule.is_edge(k) else topology.identity

    return Algorithm(
        name="sdfeel",
        topology=topology,
        schedule=schedule,
        start=start,
        deal=deal,
        merge=merge,
        evaluated=consensus,
        operator=operator,
        exchange=Gossip(links, p, zeta, gossip),
        constants=table if sparse else np.linalg.matrix_power(p, gossip).T,
        edges=lambda edges: edges,
    )


SPARSE = 8  # a pass over all edges' models costs about as much as this many rows of the matrix product
Table = tuple[NDArray[np.int32], Matrix]


def neighbours(mixing: Matrix) -> Table:
    """Leave the zeros of P out: row n has, for each edge d, a neighbour j (or d) and P[j, d]; short rows weigh 0."""
    width = int((mixing != 0).sum(0).max())
    who = np.argsort(mixing == 0, axis=0, kind="stable")[:width].astype(np.int32)
    return who, np.take_along_axis(mixing, who, 0)


def _gossip(table: tuple[Array, Array], steps: int, models: Weights) -> Weights:
    """Set w_d ← Σ_j w_j P[j,d], `steps` times, one neighbour at a time: no edge meets one it has no link to."""

    def exchange(_: Array, models: Weights) -> Weights:
        def add(n: Array, total: Weights) -> Weights:
            who, share = table[0][n], table[1][n]
            return {p: t + jnp.einsum("d,d...->d...", share, models[p][who]) for p, t in total.items()}

        return lax.fori_loop(0, table[0].shape[0], add, {p: jnp.zeros_like(w) for p, w in models.items()})

    return lax.fori_loop(0, steps, exchange, models)
