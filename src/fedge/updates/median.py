"""The coordinate-wise median (Yin, Chen, Ramchandran, Bartlett: Byzantine-Robust Distributed Learning, ICML 2018).

    w[c] ← median of w_1[c], …, w_n[c]                    of each coordinate c by itself

Of an even number of senders it is the mean of the two in the middle. As in the paper every sender counts the same:
shares say only who is there. A NaN counts as more than every number, so a minority of them does nothing.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from fedge.core.tree import Weights
from fedge.core.update import Rule
from fedge.updates.senders import along


def median() -> Rule:
    def combine(shares: Array, models: Weights, began: Weights) -> Weights:
        absent = shares <= 0
        present = jnp.sum(~absent)

        def one(w: Array) -> Array:
            ranked = jax.lax.sort((along(absent, w), w), dimension=0, num_keys=2)[1]
            low, high = ranked[(present - 1) // 2], ranked[present // 2]
            return jnp.where(low == high, low, low / 2 + high / 2)

        return {path: one(w) for path, w in models.items()}

    return Rule("median", combine)
