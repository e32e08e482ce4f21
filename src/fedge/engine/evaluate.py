"""Find the accuracy and loss of models on one set of images."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax
from jax.sharding import Mesh, PartitionSpec
from numpy.typing import ArrayLike, NDArray

from fedge.core.client import Forward, Scale, normalise
from fedge.core.tree import Weights
from fedge.engine.mesh import AXIS, BY_DEVICE, REPLICATED, mesh_of, place

# Images at a time. Measured on one core: 25 of MNIST keep its cache warm (1.7 times as fast as 250 on the CNN), and 10
# of CIFAR-10 (a tenth faster than 25 on ResNet-18).
BATCH = {"cpu": 25, "gpu": 2000}
LARGE, OF_LARGE = 1000, 10  # numbers in an image, images at a time on a CPU
TOGETHER = 100  # where a batch is normalised by its own statistics, on every machine
BY_IMAGE = PartitionSpec(None, AXIS)  # models × batches: a part of each model's on each device

Shares = list[Array]
"""These say how much each image counts in another mean loss than the plain one: for each model, laid out as images."""


class Evaluator:
    """This is compiled once; the images are spread over the devices, in batches of equal size.

    Usually a batch is as large as suits the machine, and the last one is filled up with images from the front, which
    are computed but not counted. Where an image's outputs depend on the batch it is in (`together`), batches depend on
    the number of images only: of at most 100, as equal as may be, and none is filled up.
    """

    def __init__(
        self, forward: Forward, x: ArrayLike, y: ArrayLike, scale: Scale, dtype: jnp.dtype, devices: int,
        together: bool = False,
    ) -> None:  # fmt: skip
        mesh = mesh_of(devices)
        images, labels = np.asarray(x), np.asarray(y)
        if together:
            parts = equal_batches(len(images), mesh.size)
        else:
            parts = [full_batches(len(images), _best_size(images, mesh), mesh.size)]
        self._batches = [place((images[i], labels[i], c.astype(np.float32)), mesh, BY_DEVICE) for i, c in parts]
        self._parts, self._samples, self._dtype = parts, len(images), dtype

        def batch(weights: Weights, images: Array, labels: Array, counted: Array, *shares: Array) -> tuple[Array, ...]:
            logits, _ = forward(weights, normalise(images, scale, dtype), train=False, key=jax.random.key(0))
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
            right = jnp.sum(counted * (logits.argmax(-1) == labels))
            return right, *(jnp.sum(c * losses) for c in (counted, *shares))

        def on_device(
            models: Weights, shares: tuple[Array, ...], batches: tuple[Array, Array, Array]
        ) -> tuple[Array, ...]:
            def one(model: tuple[Weights, tuple[Array, ...]]) -> tuple[Array, ...]:
                weights, own_shares = model
                sums = lax.map(lambda b: batch(weights, *b), (*batches, *own_shares))
                return tuple(each.sum() for each in sums)

            return lax.psum(lax.map(one, (models, shares)), AXIS)

        self._mesh = mesh
        specs = (REPLICATED, BY_IMAGE, BY_DEVICE)
        self._run = jax.jit(jax.shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=REPLICATED, check_vma=False))

    def __call__(self, weights: Weights) -> tuple[float, float]:
        """Return (accuracy, loss)."""
        right, loss = self.each({path: jnp.asarray(w)[None] for path, w in weights.items()})
        return float(right[0]), float(loss[0])

    def each(self, models: Weights, shares: Shares | None = None) -> tuple[NDArray[Any], ...]:
        """Return (accuracies, losses) of several models, stacked along a leading axis; with shares also the losses'
        means by these, found in the same pass."""
        models = place(models, self._mesh, REPLICATED)
        own = [()] * len(self._batches) if shares is None else [(share,) for share in shares]
        sums = [jax.block_until_ready(self._run(models, *both)) for both in zip(own, self._batches, strict=True)]
        return tuple(np.asarray(sums, float).sum(0) / self._samples)

    def shares(self, values: NDArray[Any]) -> Shares:
        """Put on the devices how much each image counts for each model: models × images, each row with sum one.

        They are kept as multiples of an even share, so that the mean by even ones is the plain mean to the bit.
        """
        found = [np.where(counts, values[:, index] * self._samples, 0) for index, counts in self._parts]
        return [place(share.astype(self._dtype), self._mesh, BY_IMAGE) for share in found]


Batches = tuple[NDArray[np.intp], NDArray[np.bool_]]  # batches × images: which image, and whether it counts


def full_batches(images: int, size: int, devices: int) -> Batches:
    """Make batches of one size, the last of them filled up; as many on each device."""
    size = min(size, images)
    total = -(-images // (size * devices)) * size * devices
    index = np.arange(total)
    return (index % images).reshape(-1, size), (index < images).reshape(-1, size)


def equal_batches(images: int, devices: int) -> list[Batches]:
    """Make batches of one or two neighbouring sizes, whatever the number of devices; whole batches are repeated so that
    each device has as many."""
    batches = np.array_split(np.arange(images), -(-images // TOGETHER))
    found = []
    for size in sorted({len(b) for b in batches}):
        index = np.stack([b for b in batches if len(b) == size])
        missing = -len(index) % devices
        counts = np.arange(len(index) + missing) < len(index)
        index = np.concatenate([index, np.repeat(index[:1], missing, 0)])
        found.append((index, np.repeat(counts[:, None], size, 1)))
    return found


def _best_size(images: NDArray[Any], mesh: Mesh) -> int:
    platform = mesh.devices.flat[0].platform
    if platform == "cpu" and images[0].size > LARGE:
        return min(OF_LARGE, BATCH["cpu"])
    return BATCH.get(platform, BATCH["gpu"])
