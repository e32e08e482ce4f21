"""Norm clipping (Sun, Kairouz, Suresh, McMahan: Can You Really Backdoor Federated Learning?, 2019).

    w ← w' + Σ_i m_i Δ_i · min(1, τ/‖Δ_i‖),  Δ_i = w_i − w'

Symbols: w' = the model that all senders began with, m_i = shares, τ = bound, in the norm of the whole model. Who sent
anything but finite numbers does not count, and the others' shares are made to sum to 1 again.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import Array

from fedge.core import tree
from fedge.core.tree import Weights
from fedge.core.update import Rule
from fedge.errors import ConfigError, brief
from fedge.updates.senders import finite, rows, squared_distances


def clipping(bound: float) -> Rule:
    """Return the weighted mean of updates whose norms are at most `bound`."""
    if not 0 < bound < math.inf:
        raise ConfigError(f"clipping updates to a norm of {brief(bound)}; give a finite number greater than 0")

    def combine(shares: Array, models: Weights, began: Weights) -> Weights:
        there = finite(shares, models)
        updates = rows(there, {path: w - began[path] for path, w in models.items()})
        norm = jnp.sqrt(squared_distances(updates, {path: jnp.zeros_like(w) for path, w in began.items()}))
        share = jnp.where(there, shares, 0)
        share = share / jnp.sum(share) * jnp.minimum(1, bound / jnp.where(norm == 0, bound, norm))
        return {path: began[path] + step for path, step in tree.weighted_sum(share, updates).items()}

    return Rule(f"clip:{bound:g}", combine)
