"""Linear quantisation to 8 bits (Jacob et al.: Quantization and Training of Neural Networks, CVPR 2018).

    q_i = round(v_i/σ),  σ = max_i |v_i| / 127            sent: σ and one signed byte for each number of a tensor
    v_i ≈ σ·q_i,  |v_i − σ·q_i| ≤ σ/2

The scale σ is of each tensor by itself, in its own precision. Rounding is to the nearest, halves to the even one, so
nothing is drawn, and what arrives is biased (QSGD's is not). Without the paper's offset 0 stays 0.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from fedge.core.tree import Weights
from fedge.core.update import Codec, Message

MOST = 127


def int8() -> Codec:
    """Return linear quantisation to signed bytes."""

    def encode(key: Array, update: Weights) -> Message:
        def one(v: Array) -> tuple[Array, Array]:
            scale = jnp.max(jnp.abs(v)) / MOST
            return scale, jnp.round(v / jnp.where(scale == 0, 1, scale)).astype(jnp.int8)

        return {path: one(v) for path, v in update.items()}

    def decode(message: Message, like: Weights) -> Weights:
        return {path: message[path][0] * message[path][1].astype(v.dtype) for path, v in like.items()}

    return Codec("int8", encode, decode)
