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
    """This names what a draw is for. The numbers are part of every recorded result: append, never renumber."""

    INIT = 1
    PARTITION = 2
    ASSIGNMENT = 3
    BATCH = 4
    DROPOUT = 5
    PARTICIPATION = 6
    ALGORITHM = 7
    GRAPH = 8
    DELAY = 9
    CODEC = 10
    HELD_OUT = 11
    PROBE = 12
    PLAN = 13


def root(seed: int) -> Array:
    return jax.random.key(seed, impl="threefry2x32")


def fold(key: Array, *names: int | Array) -> Array:
    """Make the key of a draw that integers name, for instance `fold(root(seed), Purpose.BATCH, client)`."""
    for name in names:
        key = jax.random.fold_in(key, jnp.asarray(name, jnp.uint32))
    return key


def host_rng(seed: int, purpose: Purpose, *names: int) -> np.random.Generator:
    """Do the same for draws that are made once, on the host, before training (partitions, assignments)."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, int(purpose), *names])))


SWAPS = 32  # pairs of positions are then uniform to within what 10⁵ draws can tell (tests/core/test_keys.py)


def _mix(x: Array) -> Array:
    """Spread bits like an avalanche (MurmurHash3's finaliser): each input bit flips each output bit half the time."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def _below(x: Array, n: Array) -> Array:
    """Return ⌊x·n / 2³²⌋: 32 random bits become a number in [0, n), without 64-bit integers or division."""
    a, b, c, d = x >> 16, x & 0xFFFF, n >> 16, n & 0xFFFF
    low = a * d + ((b * d) >> 16)
    return a * c + (low >> 16) + ((b * c + (low & 0xFFFF)) >> 16)


def permute(key: Array, epoch: Array, position: Array, n: Array) -> Array:
    """Return where `position` in [0, n) lands in the pseudo-random permutation of [0, n) named by (key, epoch).

    A swap-or-not shuffle (Hoang, Morris, Rogaway: An Enciphering Scheme Based on a Card Shuffle, CRYPTO 2012): each
    round pairs x with K − x mod n for a random K and swaps the two or not by a random bit that both agree on. One index
    costs some integer operations, no list is sorted or stored, and `n` may be a traced value, so clients of different
    sizes share one compiled program. Epochs and positions broadcast; `n` is a scalar.
    """
    n = jnp.asarray(n, jnp.uint32)
    words = jax.random.bits(key, (SWAPS, 2), jnp.uint32)
    tweak = _mix(jnp.asarray(epoch, jnp.uint32) + jnp.uint32(0x9E3779B9))

    def swap_or_not(i: int, x: Array) -> Array:
        k = _below(_mix(words[i, 0] + tweak), n)
        partner = jnp.where(x <= k, k - x, k + n - x)
        coin = _mix(jnp.maximum(x, partner) ^ _mix(words[i, 1] + tweak)) >> 31
        return jnp.where(coin == 1, partner, x)

    shape = jnp.broadcast_shapes(jnp.shape(position), tweak.shape)
    x = jnp.broadcast_to(jnp.asarray(position, jnp.uint32), shape)
    return lax.fori_loop(0, SWAPS, swap_or_not, x).astype(jnp.int32)
