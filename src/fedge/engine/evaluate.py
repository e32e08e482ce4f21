"""Accuracy and loss of one model on one set of images."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax
from jax.sharding import NamedSharding

from fedge.core.client import Forward, normalise
from fedge.core.tree import Weights
from fedge.engine.vectorised import AXIS, EVERYWHERE, SPREAD, mesh_of

BATCH = 250


class Evaluator:
    """Compiled once; the images are spread over the devices, in batches of a fixed size.

    The last batch is filled up with images from the front, which are computed but not counted.
    """

    def __init__(self, forward: Forward, x: Array, y: Array, scale: Any, dtype: jnp.dtype, devices: int) -> None:
        mesh = mesh_of(devices)
        size = min(BATCH, len(x))
        total = -(-len(x) // (size * mesh.size)) * size * mesh.size
        index = np.arange(total) % len(x)
        spread = NamedSharding(mesh, SPREAD)
        shape = lambda a: jax.device_put(a.reshape(-1, size, *a.shape[1:]), spread)  # noqa: E731
        counted = (np.arange(total) < len(x)).astype(np.float32)
        self._batches = (shape(np.asarray(x)[index]), shape(np.asarray(y)[index]), shape(counted))
        self._samples = len(x)

        def batch(weights: Weights, images: Array, labels: Array, counted: Array) -> tuple[Array, Array]:
            logits, _ = forward(weights, normalise(images, scale, dtype), train=False, key=jax.random.key(0))
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
            return jnp.sum(counted * (logits.argmax(-1) == labels)), jnp.sum(counted * losses)

        def on_device(weights: Weights, batches: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            right, loss = lax.map(lambda b: batch(weights, *b), batches)
            return lax.psum((right.sum(), loss.sum()), AXIS)

        self._everywhere = NamedSharding(mesh, EVERYWHERE)
        self._run = jax.jit(
            jax.shard_map(
                on_device, mesh=mesh, in_specs=(EVERYWHERE, SPREAD), out_specs=EVERYWHERE, check_vma=False
            )
        )

    def __call__(self, weights: Weights) -> tuple[float, float]:
        """(accuracy, loss)."""
        right, loss = self._run(jax.device_put(weights, self._everywhere), self._batches)
        return float(right) / self._samples, float(loss) / self._samples
