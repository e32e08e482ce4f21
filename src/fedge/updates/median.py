"""The coordinate-wise median (Yin, Chen, Ramchandran, Bartlett: Byzantine-Robust Distributed Learning, ICML 2018).

    w[c] ← median of w_1[c], …, w_n[c]                    of each coordinate c by itself

Of an even number of senders it is the mean of the two in the middle. As in the paper every sender counts the same:
shares say only who is there. A NaN counts as more than every number, so a minority of them does nothing.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from fedge.core.tree import Weights
from fedge.core.update import Rule
from fedge.updates.senders import along, ranks


def median() -> Rule:
    def combine(shares: Array, models: Weights, began: Weights) -> Weights:
        present = jnp.sum(shares > 0)

        def one(w: Array) -> Array:
            rank, there = ranks(shares, w), along(shares > 0, w)
            low, high = (jnp.sum(jnp.where(there & (rank == r), w, 0), 0) for r in ((present - 1) // 2, present // 2))
            return jnp.where(low == high, low, low / 2 + high / 2)

        return {path: one(w) for path, w in models.items()}

    return Rule("median", combine)
