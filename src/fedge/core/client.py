"""A client updates its edge's model with its own data. Every engine runs this code.

Shape legend: B batch, C clients, N samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax
from jax import Array

from fedge.core import tree
from fedge.core.keys import Purpose, fold
from fedge.core.objective import Objective
from fedge.core.sampling import Sampler
from fedge.core.split import Split, client_backward, client_forward, edge_step
from fedge.core.tree import Weights

Scale = tuple[tuple[float, ...], tuple[float, ...]]


class Data(NamedTuple):
    """This is all clients' data. Client i owns x[order[start[i] : start[i] + size[i]]]: nothing is padded or copied.

    A job has them as arrays of the host; an engine puts on its devices what each needs.
    """

    x: Any  # N × …, uint8 or floating
    y: Any  # N × …, integers or floating
    order: Any  # sample indices, client after client
    start: Any  # C
    size: Any  # C


class Forward(Protocol):
    def __call__(self, weights: Weights, x: Array, *, train: bool, key: Array) -> tuple[Array, Weights]:
        """Return outputs and the running statistics after this batch (none for a model that keeps none)."""
        ...


@dataclass(frozen=True)
class Task:
    """This says what a client does at an iteration: a value of pure functions and sizes known at tracing."""

    forward: Forward
    trainable: frozenset[str]
    sampler: Sampler
    batch: int
    optimiser: Callable[[Array], optax.GradientTransformation]  # from the learning rate
    scale: Scale  # channel mean and standard deviation of inputs in [0, 1]
    dtype: jnp.dtype
    objective: Objective
    windows: bool = False  # the model reads its inputs in overlapping windows: a convolution
    split: Split | None = None  # take gradients by messages between the two halves of a split model

    def inputs(self, data: Data, index: Array) -> tuple[Array, Array]:
        """Look up the images and labels of these samples.

        Windows get two halves on a CPU: XLA does not fuse beyond a concatenation, and would otherwise look up each
        pixel anew for every tap of a convolution (90 µs of a CNN's step of 630, instead of 35).
        """
        half = len(index) // 2 if self.windows and jax.default_backend() == "cpu" else 0
        halves = (index[:half], index[half:]) if half else (index,)
        return normalise(jnp.concatenate([data.x[i] for i in halves]), self.scale, self.dtype), data.y[index]

    def indices(self, key: Array, data: Data, client: Array, first: Array, steps: int) -> Array:
        """Draw the samples [steps, B] that a client uses from iteration `first` on."""
        own = self.sampler(fold(key, Purpose.BATCH, client), first, steps, self.batch, data.size[client])
        return data.order[data.start[client] + own]

    def gradient(
        self, weights: Weights, data: Data, index: Array, key: Array, client: Array, iteration: Array
    ) -> tuple[Array, Weights, Weights]:
        """Return a minibatch's loss, its gradient over the trainable paths, and the running statistics after it."""
        x, y = self.inputs(data, index)
        dropout = fold(key, Purpose.DROPOUT, client, iteration)
        if self.split is not None:
            return self._by_messages(self.split, weights, x, y, dropout)

        def loss(params: Weights, rest: Weights) -> tuple[Array, Weights]:
            outputs, statistics = self.forward(params | rest, x, train=True, key=dropout)
            return self.objective.loss(outputs, y).mean(), statistics

        params, rest = tree.split(weights, self.trainable.__contains__)
        (value, statistics), gradient = jax.value_and_grad(loss, has_aux=True)(params, rest)
        return value, gradient, statistics

    def _by_messages(
        self, split: Split, weights: Weights, x: Array, y: Array, key: Array
    ) -> tuple[Array, Weights, Weights]:
        """Find the same gradient; each function below is handed only what its side of the network has."""
        params, rest = tree.split(weights, self.trainable.__contains__)
        mine, theirs = tree.split(params, split.on_client)
        my_rest, their_rest = tree.split(rest, split.on_client)
        up = client_forward(split, mine | my_rest, x, y, key)
        value, g_edge, s_edge, down = edge_step(split, theirs, their_rest, up, key)
        g_client, s_client = client_backward(split, mine, my_rest, x, down, key)
        return value, g_client | g_edge, s_client | s_edge

    def update(
        self,
        lr: Array,
        weights: Weights,
        memory: optax.OptState,
        gradient: Weights,
        statistics: Weights,
        mask: Weights | None,
    ) -> tuple[Weights, optax.OptState]:
        """Make one optimiser step; coordinates outside the mask stay where they are, whatever the optimiser does."""

        def within_mask(tensors: Weights) -> Weights:
            return {path: x * mask[path] if mask and path in mask else x for path, x in tensors.items()}

        params, rest = tree.split(weights, self.trainable.__contains__)
        delta, memory = self.optimiser(lr).update(within_mask(gradient), memory, params)
        assert isinstance(delta, dict)
        delta = within_mask(delta)
        return {path: p + delta[path] for path, p in params.items()} | rest | statistics, memory

    def fresh(self, lr: Array, weights: Weights) -> optax.OptState:
        """Make the optimiser's memory at the start of an edge round: a client keeps nothing from one to the next."""
        return self.optimiser(lr).init(tree.split(weights, self.trainable.__contains__)[0])


def normalise(x: Array, scale: Scale, dtype: jnp.dtype) -> Array:
    """Bytes become numbers in [0, 1]; then the channels' mean is taken off and their deviation divided out.

    Other integers (token ids, say) are left as they are.
    """
    mean, deviation = (jnp.asarray(s, dtype) for s in scale)
    if jnp.issubdtype(x.dtype, jnp.integer) and x.dtype != jnp.uint8:
        return x
    if x.dtype == jnp.uint8:
        return x.astype(dtype) * (1 / (255 * deviation)) - mean / deviation
    return (x.astype(dtype) - mean) / deviation
