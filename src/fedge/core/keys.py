"""Randomness: every draw comes from a key folded from (seed, purpose, and whatever names the draw).

Nothing here keeps state, so a draw is the same on every engine, device count, chunk size and process, and a run
that resumes in round 7 draws what an uninterrupted run would have drawn in round 7.
"""

from __future__ import annotations

from enum import IntEnum

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax


class Purpose(IntEnum):
    """What a draw is for. The numbers are part of every recorded result: append, never renumber."""

    INIT = 1
    PARTITION = 2
    ASSIGNMENT = 3
    BATCH = 4
    DROPOUT = 5
    PARTICIPATION = 6
    ALGORITHM = 7
    GRAPH = 8


def root(seed: int) -> Array:
    return jax.random.key(seed, impl="threefry2x32")


def fold(key: Array, *names: int | Array) -> Array:
    """The key of a draw named by integers, for instance `fold(root(seed), Purpose.BATCH, client)`."""
    for name in names:
        key = jax.random.fold_in(key, jnp.asarray(name, jnp.uint32))
    return key


def host_rng(seed: int, purpose: Purpose, *names: int) -> np.random.Generator:
    """The same idea for draws made once, on the host, before training (partitions, assignments)."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, int(purpose), *names])))


ROUNDS = 8  # even, so that the halves of an odd-width Feistel block end where they began


def _mix(x: Array) -> Array:
    """A 32-bit avalanche (the MurmurHash3 finaliser): each input bit flips each output bit half the time."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def permute(key: Array, epoch: Array, position: Array, n: Array) -> Array:
    """Where `position` in [0, n) lands in the pseudo-random permutation of [0, n) named by (key, epoch).

    A Feistel network with cycle walking: one index costs a few integer operations, no list is sorted or stored, and
    `n` may be a traced value, so clients of different sizes share one compiled program. Epochs and positions
    broadcast; `n` is a scalar.
    """
    n = jnp.asarray(n, jnp.uint32)
    bits = jnp.uint32(32) - lax.clz(jnp.maximum(n, 1) - 1)  # the block is the smallest power of two that holds n
    words = jax.random.bits(key, (ROUNDS,), jnp.uint32)
    tweak = _mix(jnp.asarray(epoch, jnp.uint32) + jnp.uint32(0x9E3779B9))

    def encrypt(x: Array) -> Array:
        width_left, width_right = bits // 2, bits - bits // 2
        left, right = x >> width_right, x & ((jnp.uint32(1) << width_right) - 1)
        for i in range(ROUNDS):
            mask = (jnp.uint32(1) << width_left) - 1
            left, right = right, left ^ (_mix(right + words[i] + tweak * jnp.uint32(2 * i + 1)) & mask)
            width_left, width_right = width_right, width_left
        return (left << width_right) | right

    x = encrypt(jnp.broadcast_to(jnp.asarray(position, jnp.uint32), jnp.broadcast_shapes(position.shape, tweak.shape)))
    x = lax.while_loop(lambda x: jnp.any(x >= n), lambda x: jnp.where(x >= n, encrypt(x), x), x)
    return x.astype(jnp.int32)
