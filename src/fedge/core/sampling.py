"""Which samples a client uses at an iteration, and which clients take part in an edge round: functions of keys."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from fedge.core.keys import Purpose, fold, permute

Sampler = Callable[[Array, Array, int, int, Array], Array]
"""(client key, first iteration, steps, batch, client size) → positions [steps, batch] in the client's own data."""


def epoch(key: Array, first: Array, steps: int, batch: int, size: Array) -> Array:
    """Without replacement: an endless stream of shuffled passes over the client's data, cut into full batches.

    A batch may straddle two passes, so every batch is full whatever the client's size.
    """
    iteration = first.astype(jnp.uint32) + jnp.arange(steps, dtype=jnp.uint32)
    stream = iteration[:, None] * jnp.uint32(batch) + jnp.arange(batch, dtype=jnp.uint32)
    n = size.astype(jnp.uint32)
    return permute(key, stream // n, stream % n, n)


def iid(key: Array, first: Array, steps: int, batch: int, size: Array) -> Array:
    """With replacement: what the theory assumes."""

    def draw(iteration: Array) -> Array:
        return jax.random.randint(fold(key, iteration), (batch,), 0, size, jnp.int32)

    return jax.vmap(draw)(first.astype(jnp.uint32) + jnp.arange(steps, dtype=jnp.uint32))


SAMPLERS: dict[str, Sampler] = {"epoch": epoch, "iid": iid}


def participants(n: int, fraction: float) -> int:
    """How many of a cell's `n` clients take part in an edge round: at least one, halves rounded up."""
    return max(1, math.floor(n * fraction + 0.5))


def drawn_participants(
    key: Array, cell: int, number: int, roster: NDArray[np.int32], fraction: float
) -> NDArray[np.int32]:
    """The clients of a cell that take part in edge round `number`, on the host."""
    if fraction == 1:
        return roster
    ranks = jnp.arange(participants(len(roster), fraction))
    drawn = permute(fold(key, Purpose.PARTICIPATION, cell), jnp.asarray(number), ranks, jnp.asarray(len(roster)))
    return roster[np.asarray(drawn)]
