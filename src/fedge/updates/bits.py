"""Numbers of b bits each, packed into bytes without a gap.

Eight numbers fill b bytes, so both directions go by blocks of eight, with shifts that are known when they are traced.
The first number lies in the lowest bits of the first byte. n numbers take ⌈b·n/8⌉ bytes.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array


def pack(numbers: Array, bits: int) -> Array:
    """Pack a vector of uint32, each below 2^bits, into uint8."""
    count = numbers.size
    blocks = jnp.pad(numbers, (0, -count % 8)).reshape(-1, 8)
    packed = [
        _joined([_moved(blocks[:, i], bits * i - 8 * byte) for i in range(8) if _meet(i, byte, bits)]) & 0xFF
        for byte in range(bits)
    ]
    return jnp.stack(packed, 1).astype(jnp.uint8).reshape(-1)[: (bits * count + 7) // 8]


def unpack(packed: Array, bits: int, count: int) -> Array:
    """Return the `count` numbers that were packed, as uint32."""
    blocks = jnp.pad(packed, (0, -packed.size % bits)).reshape(-1, bits).astype(jnp.uint32)
    numbers = [
        _joined([_moved(blocks[:, byte], 8 * byte - bits * i) for byte in range(bits) if _meet(i, byte, bits)])
        & ((1 << bits) - 1)
        for i in range(8)
    ]
    return jnp.stack(numbers, 1).reshape(-1)[:count]


def _meet(i: int, byte: int, bits: int) -> bool:
    """Say whether some bits of a block's number i lie in this byte of it."""
    return bits * i < 8 * (byte + 1) and 8 * byte < bits * (i + 1)


def _moved(x: Array, up: int) -> Array:
    return x << up if up >= 0 else x >> -up


def _joined(parts: list[Array]) -> Array:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole | part
    return whole
