"""Find the loss and the metrics of models on one set of images, or of samples of any other kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, PartitionSpec
from numpy.typing import ArrayLike, NDArray

from fedge.core.client import Forward, Scale, normalise
from fedge.core.objective import Objective, PerSample
from fedge.core.tree import Weights
from fedge.engine.mesh import AXIS, BY_DEVICE, REPLICATED, mesh_of, place

# Images at a time. Measured on one core: 25 of MNIST keep its cache warm (1.7 times as fast as 250 on the CNN), and 10
# of CIFAR-10 (a tenth faster than 25 on ResNet-18).
BATCH = {"cpu": 25, "gpu": 2000}
LARGE, OF_LARGE = 1000, 10  # numbers in an image, images at a time on a CPU
MOST_OUTPUTS = 2**27  # of a batch: tokens have an output for each position and each word
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
        self, forward: Forward, objective: Objective, x: ArrayLike, y: ArrayLike, scale: Scale, dtype: jnp.dtype,
        devices: int, together: bool = False,
    ) -> None:  # fmt: skip
        self._mesh, self._objective, self._dtype = mesh_of(devices), objective, dtype
        images, labels = np.asarray(x), np.asarray(y)
        if together:
            self._parts = equal_batches(len(images), self._mesh.size)
        else:
            self._parts = [full_batches(len(images), _best_size(images, labels, self._mesh), self._mesh.size)]
        self._batches = [
            place((images[i], labels[i], c.astype(np.float32)), self._mesh, BY_DEVICE) for i, c in self._parts
        ]
        self._samples = len(images)

        def outputs(weights: Weights, images: Array) -> Array:
            return forward(weights, normalise(images, scale, dtype), train=False, key=jax.random.key(0))[0]

        self._outputs = outputs
        self._sums = self._compile(self._batch_sums, _sum_batches, lambda sums: lax.psum(sums, AXIS))
        self._each: dict[str | None, Callable[..., Array]] = {}

    def __call__(self, weights: Weights) -> dict[str, float]:
        """Return the metrics and the loss of one model."""
        found = self.each({path: jnp.asarray(w)[None] for path, w in weights.items()})
        return {name: float(values[0]) for name, values in found.items()}

    def each(self, models: Weights, shares: Shares | None = None) -> dict[str, NDArray[np.float64]]:
        """Return the metrics and losses of several models, stacked along a leading axis; with shares also, as
        `objective`, the losses' means by these, found in the same pass."""
        models = place(models, self._mesh, REPLICATED)
        own = [()] * len(self._batches) if shares is None else [(share,) for share in shares]
        sums = [jax.block_until_ready(self._sums(models, *both)) for both in zip(own, self._batches, strict=True)]
        found = {}
        for name in (*self._objective.names, *(() if shares is None else ("objective",))):
            mean = np.asarray([part[name] for part in sums], float).sum(0) / self._samples
            found[name] = mean if name == "objective" else self._objective.value(name, mean)
        return found

    def of_samples(self, models: Weights, metric: str) -> NDArray[Any]:
        """Return what a metric is a mean of, for each sample: models × samples, or models × samples × K."""
        return self._per_sample(models, metric, self._objective.metric(metric).each)

    def predicted(self, models: Weights) -> NDArray[Any]:
        """Return the class that each model predicts for each sample (or for each of its positions)."""
        predict = self._objective.predict
        if predict is None:
            raise ValueError(f"objective {self._objective.name} predicts no classes")
        return self._per_sample(models, None, lambda outputs, labels: predict(outputs))

    def _per_sample(self, models: Weights, name: str | None, function: PerSample) -> NDArray[Any]:
        if name not in self._each:
            self._each[name] = self._compile(
                lambda weights, images, labels, counted: function(self._outputs(weights, images), labels),
                lambda values: values,
                lambda values: lax.all_gather(values, AXIS, axis=1, tiled=True),
            )
        models = place(models, self._mesh, REPLICATED)
        found: NDArray[Any] | None = None
        for batches, (index, counts) in zip(self._batches, self._parts, strict=True):
            values = np.asarray(self._each[name](models, (), batches))
            if found is None:
                found = np.empty((len(values), self._samples, *values.shape[3:]), values.dtype)
            found[:, index[counts]] = values[:, counts]
        assert found is not None
        return found

    def _batch_sums(
        self, weights: Weights, images: Array, labels: Array, counted: Array, *shares: Array
    ) -> dict[str, Array]:
        """Sum up what each metric is a mean of, and the losses, over the images of a batch that count."""
        outputs = self._outputs(weights, images)
        losses = self._objective.loss(outputs, labels)
        found = {n: _sum_counted(counted, self._objective.metric(n).each(outputs, labels))
                 for n in self._objective.metrics}  # fmt: skip
        found["loss"] = jnp.sum(counted * losses)
        if shares:
            (share,) = shares
            found["objective"] = jnp.sum(share * losses)
        return found

    def _compile(
        self, batch: Callable[..., Any], of_model: Callable[[Any], Any], join: Callable[[Any], Any]
    ) -> Callable[..., Any]:
        """Compile (models, shares, batches) → what `of_model` makes of all that `batch` finds for a model on a device,
        joined over the devices."""

        def on_device(models: Weights, shares: tuple[Array, ...], batches: tuple[Array, Array, Array]) -> Any:
            def one(model: tuple[Weights, tuple[Array, ...]]) -> Any:
                weights, own_shares = model
                return of_model(lax.map(lambda b: batch(weights, *b), (*batches, *own_shares)))

            return join(lax.map(one, (models, shares)))

        specs = (REPLICATED, BY_IMAGE, BY_DEVICE)
        return jax.jit(jax.shard_map(on_device, mesh=self._mesh, in_specs=specs, out_specs=REPLICATED, check_vma=False))

    def shares(self, values: NDArray[Any]) -> Shares:
        """Put on the devices how much each image counts for each model: models × images, each row with sum one.

        They are kept as multiples of an even share, so that the mean by even ones is the plain mean to the bit.
        """
        found = [np.where(counts, values[:, index] * self._samples, 0) for index, counts in self._parts]
        return [place(share.astype(self._dtype), self._mesh, BY_IMAGE) for share in found]


def _sum_counted(counted: Array, values: Array) -> Array:
    """Sum one number of each image, or several, over the images that count."""
    return jnp.sum(counted * values) if values.ndim == 1 else jnp.sum(counted[:, None] * values, 0)


def _sum_batches(found: Any) -> Any:
    return jax.tree.map(lambda each: each.sum(0), found)


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


def _best_size(images: NDArray[Any], labels: NDArray[Any], mesh: Mesh) -> int:
    platform = mesh.devices.flat[0].platform
    kinds = int(labels.max()) + 1 if np.issubdtype(labels.dtype, np.integer) else 1
    most = max(1, MOST_OUTPUTS // max(1, labels[0].size * kinds))
    if platform == "cpu" and images[0].size > LARGE:
        return min(OF_LARGE, BATCH["cpu"], most)
    return min(BATCH.get(platform, BATCH["gpu"]), most)
