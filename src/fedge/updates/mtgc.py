"""MTGC (Fang, Han, Chen, Wang, Brinton: Hierarchical Federated Learning with Multi-Timescale Gradient Correction).

NeurIPS 2024, for two tiers.

    w_i ← w_i − γ (g_i + z_i + y_d)                       every iteration
    z_i ← z_i + (w_i − w_d⁺)/(Hγ)                         after each edge average w_d⁺ of the w_i
    y_d ← y_d + (w_d⁺ − w⁺)/(HEγ)                         after each cloud average w⁺ of the w_d⁺

Symbols: H = τ1 = local_steps, E = τ2 = edge_rounds, γ = lr; z_i = a client's row, towards its cell's gradient, which
begins each global round at 0; y_d = a cell's row, towards the cloud's, 0 at first. With w_d the edge's model before,
w_i − w_d⁺ = (w_i − w_d) − (w_d⁺ − w_d): a client adds the first part when its steps are done, and takes off the second
when it hears of the average.

Because z_i begins again, the first edge round of each global round is corrected by y_d alone, and a small bias stays:
on the quadratic losses of tests/updates/test_corrections.py 0.0034 of HierFAVG's 0.047 with E = 4, and none if z_i
were kept. A client reckons z_i itself, and is sent y_d once in each global round.
"""

from __future__ import annotations

import jax
from jax import Array

from fedge.core.tree import Weights
from fedge.core.update import Correction


def _shift(client: Weights, cell: Weights) -> Weights:
    return jax.tree.map(lambda z, y: z + y, client, cell)


def _after_steps(client: Weights, cell: Weights, moved: Weights, steps: Array) -> Weights:
    return jax.tree.map(lambda z, x: (z + x / steps).astype(z.dtype), client, moved)


def _after_edge(client: Weights, moved: Weights, steps: Array) -> Weights:
    return jax.tree.map(lambda z, x: (z - x / steps).astype(z.dtype), client, moved)


def _cell_after_cloud(cell: Weights, apart: Weights, steps: Array) -> Weights:
    return jax.tree.map(lambda y, x: (y + x / steps).astype(y.dtype), cell, apart)


MTGC = Correction(
    name="mtgc",
    persistent=False,
    shift=_shift,
    after_steps=_after_steps,
    after_edge=_after_edge,
    cell_after_edge=lambda cell, change: cell,
    cell_after_cloud=_cell_after_cloud,
    once=1,
    follows=True,
)
