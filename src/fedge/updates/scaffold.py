"""SCAFFOLD (Karimireddy et al.: Stochastic Controlled Averaging for Federated Learning, ICML 2020), with option II.

    w_i ← w_i − γ (g_i − c_i + c_d)                       every iteration
    c_i⁺ ← c_i − c_d − (w_i − w_d)/(Hγ)                   after H = τ1 of them; w_d = the edge's model they began with
    c_d  ← c_d + Σ_{i∈d} (m_i/m̃_d)(c_i⁺ − c_i)            at the edge, then back to its clients

Symbols: c_i = a client's row, c_d = its cell's row, all 0 at first, so that c_d = Σ_{i∈d} (m_i/m̃_d) c_i at all times;
the sum for c_d is over the clients that took part, by their shares of the whole cell (the paper's 1/N for each). The
paper has one server, which FedAvg's cloud is; in a hierarchy each edge is the server of its own clients: they are drawn
to their cell's gradient, and cells drift apart as before (MTGC corrects that too). The server's step size is 1.
As in the paper a client sends c_i⁺ − c_i beside its model and is sent c_d beside the edge's.
"""

from __future__ import annotations

import jax
from jax import Array

from fedge.core.tree import Weights
from fedge.core.update import Correction


def _shift(client: Weights, cell: Weights) -> Weights:
    return jax.tree.map(lambda c, d: d - c, client, cell)


def _after_steps(client: Weights, cell: Weights, moved: Weights, steps: Array) -> Weights:
    return jax.tree.map(lambda c, d, x: (c - d - x / steps).astype(c.dtype), client, cell, moved)


def _cell_after_edge(cell: Weights, change: Weights) -> Weights:
    return jax.tree.map(lambda d, x: d + x, cell, change)


SCAFFOLD = Correction(
    name="scaffold",
    persistent=True,
    shift=_shift,
    after_steps=_after_steps,
    after_edge=lambda client, moved, steps: client,
    cell_after_edge=_cell_after_edge,
    cell_after_cloud=lambda cell, apart, steps: cell,
    up=1,
    down=1,
)
