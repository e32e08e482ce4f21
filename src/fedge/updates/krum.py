"""Krum and multi-Krum (Blanchard, El Mhamdi, Guerraoui, Stainer: Machine Learning with Adversaries, NeurIPS 2017).

    s(i) = Σ_{j → i} ‖w_i − w_j‖²                         over the n − f − 2 others that are nearest to w_i
    w ← w_i with the lowest s(i)                          Krum
    w ← (1/m) Σ of the m models with the lowest s(i)      multi-Krum; Krum is m = 1

Symbols: n = senders that are there, f = attackers among them that are withstood, which needs n ≥ 2f + 3; m = `best`, at
most n − f, or an attacker would surely be among them. As in the paper every sender counts the same: shares say only who
is there. Of equal scores the first sender's is taken; where n − f − 2 = 1 the two nearest always tie.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from fedge.core import tree
from fedge.core.tree import Weights
from fedge.core.update import Rule
from fedge.errors import ConfigError, brief
from fedge.updates.senders import finite, rows, squared_distances


def krum(attackers: int, best: int = 1) -> Rule:
    """Return the mean of the `best` models with so many attackers withstood."""
    if attackers < 0 or best < 1:
        raise ConfigError(
            f"krum with {brief(attackers)} attackers and a mean of {brief(best)}; give at least 0 and at least 1"
        )
    name = f"krum:{attackers}" if best == 1 else f"multikrum:{attackers}:{best}"

    def refusal(n: int) -> str | None:
        least = max(2 * attackers + 3, attackers + best)
        if n >= least:
            return None
        return f"{name} needs at least {least} senders and there are {n}; take fewer attackers or more senders"

    def combine(shares: Array, models: Weights, began: Weights) -> Weights:
        n, there = len(shares), finite(shares, models)
        models = rows(there, models)
        ranked = jnp.lexsort((scores(shares > 0, there, models, attackers), shares <= 0))  # who is absent comes last
        chosen = ranked[: min(best, n)]
        return tree.weighted_sum(jnp.zeros(n).at[chosen].set(1 / len(chosen)), models)

    return Rule(name, combine, refusal)


def scores(present: Array, there: Array, models: Weights, attackers: int) -> Array:
    """Return s(i) of each sender."""
    n = len(present)
    near = jnp.arange(n) < jnp.maximum(jnp.sum(present) - attackers - 2, 1)

    def one(i: Array) -> Array:
        far = squared_distances(models, {path: w[i] for path, w in models.items()})
        far = jnp.where(there & there[i] & (jnp.arange(n) != i), far, jnp.inf)
        return jnp.sum(jnp.where(near, jnp.sort(far), 0))

    return jax.lax.map(one, jnp.arange(n))
