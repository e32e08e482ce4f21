"""Draw the samples that a client uses at an iteration and the clients that take part in an edge round, from keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from fedge.core.keys import Purpose, fold, permute

Sampler = Callable[[Array, Array, int, int, Array], Array]
"""(client key, first iteration, steps, batch, client size) → positions [steps, batch] in the client's own data."""


def epoch(key: Array, first: Array, steps: int, batch: int, size: Array) -> Array:
    """Draw without replacement: an endless stream of shuffled passes over the client's data, cut into full batches.

    A batch may straddle two passes, so every batch is full whatever the client's size.
    """
    iteration = first.astype(jnp.uint32) + jnp.arange(steps, dtype=jnp.uint32)
    stream = iteration[:, None] * jnp.uint32(batch) + jnp.arange(batch, dtype=jnp.uint32)
    n = size.astype(jnp.uint32)
    return permute(key, stream // n, stream % n, n)


def iid(key: Array, first: Array, steps: int, batch: int, size: Array) -> Array:
    """Draw with replacement, as the theory assumes."""

    def draw(iteration: Array) -> Array:
        return jax.random.randint(fold(key, iteration), (batch,), 0, size, jnp.int32)

    return jax.vmap(draw)(first.astype(jnp.uint32) + jnp.arange(steps, dtype=jnp.uint32))


SAMPLERS: dict[str, Sampler] = {"epoch": epoch, "iid": iid}


def participants(n: int, fraction: float) -> int:
    """Count the participants of an edge round among a cell's `n` clients: at least one, halves rounded up."""
    return max(1, math.floor(n * fraction + 0.5))


def draw_participants(
    key: Array, roster: list[NDArray[np.int32]], numbers: Sequence[int], fraction: float
) -> list[list[NDArray[np.int32]]]:
    """Draw on the host, for each of these edge rounds and each cell, the clients that take part.

    Cells of about the same size are drawn in one call of a compiled program, for all rounds: drawn one by one and not
    compiled, each takes 8 ms (10 cells: 77 ms an edge round, more than training it).
    """
    drawn: list[list[NDArray[np.int32]]] = [list(roster) for _ in numbers]
    if fraction == 1:
        return drawn
    active = [participants(len(clients), fraction) for clients in roster]
    widths = [1 << (count - 1).bit_length() for count in active]  # few widths: few programs; ranks too many are dropped
    for width in sorted(set(widths)):
        cells = np.flatnonzero(np.array(widths) == width)
        sizes = np.array([len(roster[d]) for d in cells], np.int32)
        ranks = np.asarray(_permuted_ranks(key, cells.astype(np.int32), sizes, np.array(numbers, np.int32), width))
        for n, each in enumerate(ranks):
            for d, positions in zip(cells, each, strict=True):
                drawn[n][d] = roster[d][positions[: active[d]]]
    return drawn


@partial(jax.jit, static_argnames="width")
def _permuted_ranks(key: Array, cells: Array, sizes: Array, numbers: Array, width: int) -> Array:
    """Return, as rounds × cells × width, who comes first, second, … in each cell."""

    def draw(cell: Array, size: Array, number: Array) -> Array:
        return permute(fold(key, Purpose.PARTICIPATION, cell), number, jnp.arange(width), size)

    return jax.vmap(jax.vmap(draw, (0, 0, None)), (None, None, 0))(cells, sizes, numbers)
