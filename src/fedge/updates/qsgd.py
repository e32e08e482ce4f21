"""QSGD (Alistarh, Grubic, Li, Tomioka, Vojnović: Communication-Efficient SGD via Gradient Quantization, NeurIPS 2017).

    Q(v_i) = ‖v‖₂ · sgn(v_i) · ξ_i / s                    for each number of a tensor v, s levels
    ξ_i    = ⌊a_i⌋ + 1 with probability a_i − ⌊a_i⌋,      a_i = s·|v_i|/‖v‖₂
             ⌊a_i⌋     otherwise                          so that E Q(v) = v

Symbols: b = bits of each number, the sign and a level of b − 1 bits, so that s = 2^(b−1) − 1; ‖v‖₂ is of each tensor
by itself (the paper's buckets). Sent are the tensors' norms in their own precision and ⌈b·n/8⌉ bytes for all n numbers
of an update, tensor after tensor: as one vector it compiles in a fifth of the time of one for each tensor (ResNet-18,
8 bits: 3 s of CPU time and not 14). The paper's Elias code, which is shorter where most levels are 0 but has no length
known before, is left out. A tensor whose squares all vanish (float32: numbers below 10⁻¹⁹) arrives as 0.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

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
        tensors = [update[path].ravel() for path in sorted(update)]
        norms = jnp.stack([jnp.linalg.norm(v) for v in tensors])
        v, norm = jnp.concatenate(tensors), _along(norms, tensors)
        a = levels * jnp.abs(v) / jnp.where(norm == 0, 1, norm)
        below = jnp.floor(a)
        up = jax.random.uniform(key, a.shape, a.dtype) < a - below
        level = jnp.minimum(below + up, levels).astype(jnp.uint32)  # a rounds to more than s in a tensor of one
        return norms, pack(level | (v < 0).astype(jnp.uint32) << (bits - 1), bits)

    def decode(message: Message, like: Weights) -> Weights:
        paths = sorted(like)
        tensors = [like[path] for path in paths]
        norms, packed = message
        number = unpack(packed, bits, sum(v.size for v in tensors))
        size = _along(norms, tensors) * (number & levels).astype(norms.dtype) / levels
        ends = np.cumsum([v.size for v in tensors])[:-1]
        arrived = jnp.split(jnp.where(number > levels, -size, size), ends)
        return {p: x.reshape(v.shape).astype(v.dtype) for p, x, v in zip(paths, arrived, tensors, strict=True)}

    return Codec(f"qsgd{bits}", encode, decode)


def _along(norms: Array, tensors: list[Array]) -> Array:
    """Repeat each tensor's norm for each of its numbers, one tensor after the other."""
    return jnp.concatenate([jnp.broadcast_to(norms[n], v.size) for n, v in enumerate(tensors)])
