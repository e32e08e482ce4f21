"""What the robust rules share: who of n senders counts, and how far their models are from one another.

Models lie along a leading axis of n; a distance is over all paths of a model together. A sender with share 0 sent
nothing, and one that sent anything but finite numbers counts as one whose model is infinitely far away.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from fedge.core.tree import Weights


def finite(shares: Array, models: Weights) -> Array:
    """Say of each sender whether it is there and sent finite numbers only."""
    whole = [jnp.isfinite(w.reshape(len(w), -1)).all(1) for w in models.values()]
    return (shares > 0) & jnp.stack(whole).all(0)


def rows(chosen: Array, models: Weights) -> Weights:
    """Set the models of all others to 0: times a share of 0 even NaN is then nothing."""
    return {path: jnp.where(along(chosen, w), w, 0) for path, w in models.items()}


def squared_distances(models: Weights, centre: Weights) -> Array:
    """Return ‖w_i − centre‖² of each sender, from differences: equal models are exactly 0 apart."""
    parts = [jnp.square(w - centre[path]).reshape(len(w), -1).sum(1) for path, w in models.items()]
    return jnp.stack(parts).sum(0)


def ranks(shares: Array, w: Array) -> Array:
    """Rank the senders at each coordinate, from 0; equal values by their shares, so that the order makes no difference.

    Those that sent nothing are not counted, and their own ranks mean nothing. NaN ranks as +∞. Each sender is compared
    with each, in passes along all coordinates: for 50 models of 238,000 numbers that takes a CPU 0.6 of the time of
    XLA's sort along the senders (a quarter for 10, as long for 200), and needs no further keys for equal values.
    """
    w, number = jnp.where(jnp.isnan(w), jnp.inf, w), jnp.arange(len(shares))
    first = (shares[:, None] < shares) | ((shares[:, None] == shares) & (number[:, None] < number))

    def count(j: Array, rank: Array) -> Array:
        before = (w[j] < w) | ((w[j] == w) & along(first[j], w))
        return rank + (before & (shares[j] > 0))

    return jax.lax.fori_loop(0, len(shares), count, jnp.zeros(w.shape, jnp.int32))


def along(x: Array, w: Array) -> Array:
    """Repeat what there is one of for each sender over all coordinates of its model."""
    return jnp.broadcast_to(x.reshape(-1, *(1,) * (w.ndim - 1)), w.shape)
