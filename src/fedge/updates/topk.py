"""Top-k with error feedback (Stich, Cordonnier, Jaggi: Sparsified SGD with Memory, NeurIPS 2018; Seide et al. 2014).

    C(v) = the k numbers of a tensor that are largest in size, with their positions; 0 elsewhere
    sent: C(Δ + e),   e ← Δ + e − C(Δ + e)                a client's memory e, 0 at first

Symbols: k = max(1, round(fraction·n)) of a tensor's n numbers. Of numbers of one size the first is sent. Positions take
2 bytes where the tensor has at most 65,536 numbers, else 4. What is kept in e is the engine's to do, where a codec says
`feedback`; without it what is not sent is lost, and the mean of what arrives is not the mean of what was sent.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from fedge.core.tree import Weights
from fedge.core.update import Codec, Message
from fedge.errors import ConfigError, brief


def topk(fraction: float, feedback: bool = True) -> Codec | None:
    """Return top-k for this fraction of each tensor; with fraction 1 nothing is done."""
    if fraction == 1:
        return None
    if not 0 < fraction < 1:
        raise ConfigError(f"topk of a fraction {brief(fraction)} of each tensor; give more than 0 and at most 1")

    def kept(n: int) -> int:
        return max(1, round(fraction * n))

    def encode(key: Array, update: Weights) -> Message:
        def one(v: Array) -> tuple[Array, Array]:
            flat = v.ravel()
            where = jax.lax.top_k(jnp.abs(flat), kept(flat.size))[1]
            return flat[where], where.astype(jnp.uint16 if flat.size <= 1 << 16 else jnp.uint32)

        return {path: one(v) for path, v in update.items()}

    def decode(message: Message, like: Weights) -> Weights:
        def one(sent: tuple[Array, Array], v: Array) -> Array:
            values, where = sent
            return jnp.zeros(v.size, v.dtype).at[where].set(values, unique_indices=True).reshape(v.shape)

        return {path: one(message[path], v) for path, v in like.items()}

    return Codec(f"topk:{fraction:g}{'' if feedback else ':plain'}", encode, decode, feedback)
