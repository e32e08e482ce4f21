"""The coordinate-wise trimmed mean (Yin, Chen, Ramchandran, Bartlett: Byzantine-Robust Learning, ICML 2018).

    w[c] ← Σ_{i∈K(c)} m_i w_i[c] / Σ_{i∈K(c)} m_i         K(c) = all but the b largest and b smallest of coordinate c

Symbols: β = fraction, b = ⌊β·n⌋ of the n senders that are there, m_i = their shares. The paper's senders count the
same, m_i = 1/n; here a sender counts by its share among those that are kept, and dropping goes by numbers of senders.
Of equal values those with the smallest shares count as the smallest, so the order of senders makes no difference. A NaN
counts as more than every number.
"""

from __future__ import annotations

import math
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
from jax import Array

from fedge.core.tree import Weights
from fedge.core.update import Rule
from fedge.errors import ConfigError, brief
from fedge.updates.senders import along, ranks


def trimmed(fraction: float) -> Rule | None:
    """Return the mean without this fraction at each end; with fraction 0 it is the plain mean, and nothing is done."""
    if fraction == 0:
        return None
    if not 0 < fraction < 0.5:
        raise ConfigError(f"trimmed by a fraction {brief(fraction)} at each end; give at least 0 and less than 0.5")

    def dropped(n: int) -> int:
        return math.floor(Fraction(repr(float(fraction))) * n)  # 0.29 of 100 is 29, which in floating point it is not

    def combine(shares: Array, models: Weights, began: Weights) -> Weights:
        present = jnp.sum(shares > 0)
        b = jnp.asarray(np.array([dropped(n) for n in range(len(shares) + 1)], np.int32))[present]

        def one(w: Array) -> Array:
            rank = ranks(shares, w)
            kept = (rank >= b) & (rank < present - b) & along(shares > 0, w)
            share = jnp.where(kept, along(shares.astype(w.dtype), w), 0)
            return jnp.sum(share * jnp.where(kept, w, 0), 0) / jnp.sum(share, 0)

        return {path: one(w) for path, w in models.items()}

    return Rule(f"trimmed:{fraction:g}", combine)
