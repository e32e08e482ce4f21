"""QSGD (Alistarh, Grubic, Li, Tomioka, Vojnović: Communication-Efficient SGD via Gradient Quantization, NeurIPS 2017).

    Q(v_i) = ‖v‖₂ · sgn(v_i) · ξ_i / s                    for each number of a tensor v, s levels
    ξ_i    = ⌊a_i⌋ + 1 with probability a_i − ⌊a_i⌋,      a_i = s·|v_i|/‖v‖₂
             ⌊a_i⌋     otherwise                          so that E Q(v) = v

Symbols: b = bits of each number, the sign and a level of b − 1 bits, so that s = 2^(b−1) − 1; ‖v‖₂ is of each tensor by
itself (the paper's buckets). Sent are ‖v‖₂ in the tensor's own precision and ⌈b·n/8⌉ bytes for its n numbers; the
paper's Elias code, which is shorter where most levels are 0 but has no length known before, is left out.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from fedge.core.keys import fold
from fedge.core.tree import Weights
from fedge.core.update import Codec, Message
from fedge.errors import ConfigError, brief
from fedge.updates.bits import pack, unpack

LEAST, MOST, EXACT = 2, 16, 32


def qsgd(bits: int) -> Codec | None:
    """Return QSGD with this many bits for each number; with 32 nothing is done."""
    if bits == EXACT:
        return None
    if not LEAST <= bits <= MOST:
        raise ConfigError(
            f"qsgd with {brief(bits)} bits for each number; give {LEAST} to {MOST}, sign and level together, "
            f"or {EXACT} to send what there is"
        )
    levels = (1 << (bits - 1)) - 1

    def encode(key: Array, update: Weights) -> Message:
        def one(key: Array, v: Array) -> tuple[Array, Array]:
            norm = jnp.linalg.norm(v.ravel())
            a = levels * jnp.abs(v.ravel()) / jnp.where(norm == 0, 1, norm)
            below = jnp.floor(a)
            up = jax.random.uniform(key, a.shape, a.dtype) < a - below
            level = jnp.minimum(below + up, levels).astype(jnp.uint32)  # a rounds to more than s in a tensor of one
            return norm, pack(level | (v.ravel() < 0).astype(jnp.uint32) << (bits - 1), bits)

        return {path: one(fold(key, n), update[path]) for n, path in enumerate(sorted(update))}

    def decode(message: Message, like: Weights) -> Weights:
        def one(sent: tuple[Array, Array], v: Array) -> Array:
            norm, packed = sent
            number = unpack(packed, bits, v.size)
            size = norm * (number & levels).astype(v.dtype) / levels
            return jnp.where(number > levels, -size, size).reshape(v.shape)

        return {path: one(message[path], v) for path, v in like.items()}

    return Codec(f"qsgd{bits}", encode, decode)
