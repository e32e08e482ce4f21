"""The geometric median (Pillutla, Kakade, Harchaoui: Robust Aggregation for Federated Learning, IEEE TSP 2022: RFA).

    w ≈ argmin_v Σ_i m_i ‖v − w_i‖                        by R steps of Weiszfeld's algorithm, smoothed by ν:

    β_i = m_i / max(ν, ‖v − w_i‖),  v ← Σ_i β_i w_i / Σ_i β_i

Symbols: m_i = shares, R = ITERATIONS, ν = SMOOTHING, the paper's 10⁻⁶; norms are over the whole model. The paper takes
about three steps and stops early; here their number is fixed, for one program on every machine. v begins at the model
that all senders began with, which is not far from honest ones, however far an attacker is. Who sent anything but finite
numbers does not count. Where the median is one of the models (n ≤ 2, or many equal ones) steps come near it slowly.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from fedge.core import tree
from fedge.core.tree import Weights
from fedge.core.update import Rule
from fedge.updates.senders import finite, rows, squared_distances

ITERATIONS, SMOOTHING = 8, 1e-6


def geometric() -> Rule:
    def combine(shares: Array, models: Weights, began: Weights) -> Weights:
        there = finite(shares, models)
        models = rows(there, models)

        def step(_: Array, v: Weights) -> Weights:
            distance = jnp.sqrt(squared_distances(models, v))
            pull = jnp.where(there, shares, 0) / jnp.maximum(SMOOTHING, distance)
            return tree.weighted_sum(pull / jnp.sum(pull), models)

        return jax.lax.fori_loop(0, ITERATIONS, step, began)

    return Rule("geometric", combine)
