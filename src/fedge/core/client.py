"""A client updates its edge's model with its own samples. Every engine runs this code, and a process on a network can.

    w ← w − γ(g(w) + pull(w))     `local_steps` times from the edge's model; g is of a minibatch of its own samples
    w_edge + passed(w − w_edge)   is what arrives at its edge; `core/update.py` says what may happen on the way

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
from fedge.core.update import Codec, Hop, Memory, Way, draw_key

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

    def of(self, client: Any) -> Samples:
        return Samples(self.x, self.y, self.order, self.start[client], self.size[client])


class Samples(NamedTuple):
    """This is one client's own data: its sample n is row rows[first + n] of x and y, for n < size.

    A simulator's clients are windows on arrays of all; one on a network has only what is `alone`.
    """

    x: Any
    y: Any
    rows: Any
    first: Any
    size: Any

    @classmethod
    def alone(cls, x: Any, y: Any) -> Samples:
        count = len(y)
        return cls(x, y, jnp.arange(count, dtype=jnp.int32), jnp.int32(0), jnp.int32(count))


Pull = Callable[[Weights], Weights]
"""trainable weights → what is added to their gradient: a proximal term, a correction"""


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

    def inputs(self, data: Data | Samples, index: Array) -> tuple[Array, Array]:
        """Look up the images and labels in these rows.

        Windows get two halves on a CPU: XLA does not fuse beyond a concatenation, and would otherwise look up each
        pixel anew for every tap of a convolution (90 µs of a CNN's step of 630, instead of 35).
        """
        half = len(index) // 2 if self.windows and jax.default_backend() == "cpu" else 0
        halves = (index[:half], index[half:]) if half else (index,)
        return normalise(jnp.concatenate([data.x[i] for i in halves]), self.scale, self.dtype), data.y[index]

    def indices(self, key: Array, own: Samples, client: Array, first: Array, steps: int) -> Array:
        """Draw the rows [steps, B] that a client uses from iteration `first` on."""
        drawn = self.sampler(fold(key, Purpose.BATCH, client), first, steps, self.batch, own.size)
        return own.rows[own.first + drawn]

    def gradient(
        self, weights: Weights, own: Data | Samples, index: Array, key: Array, client: Array, iteration: Array
    ) -> tuple[Array, Weights, Weights]:
        """Return a minibatch's loss, its gradient over the trainable paths, and the running statistics after it."""
        x, y = self.inputs(own, index)
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
        pull: Pull | None = None,
    ) -> tuple[Weights, optax.OptState]:
        """Make one optimiser step; coordinates outside the mask stay where they are, whatever the optimiser does."""

        def within_mask(tensors: Weights) -> Weights:
            return {path: x * mask[path] if mask and path in mask else x for path, x in tensors.items()}

        params, rest = tree.split(weights, self.trainable.__contains__)
        if pull is not None:
            gradient = tree.add(gradient, pull(params))
        delta, memory = self.optimiser(lr).update(within_mask(gradient), memory, params)
        assert isinstance(delta, dict)
        delta = within_mask(delta)
        return {path: p + delta[path] for path, p in params.items()} | rest | statistics, memory

    def fresh(self, lr: Array, weights: Weights) -> optax.OptState:
        """Make the optimiser's memory at the start of an edge round: a client keeps nothing from one to the next."""
        return self.optimiser(lr).init(tree.split(weights, self.trainable.__contains__)[0])


def descend(
    task: Task, start: Weights, mask: Weights | None, own: Samples, key: Array, client: Array, first: Array, steps: int,
    lr: Array, pull: Pull | None = None,
) -> tuple[Weights, Array]:  # fmt: skip
    """Make a client's `steps` at iterations `first`, `first` + 1, …; return its weights and mean loss."""

    def step(carry: tuple[Weights, Any], turn: tuple[Array, Array]) -> tuple[tuple[Weights, Any], Array]:
        weights, memory = carry
        k, index = turn
        loss, gradient, statistics = task.gradient(weights, own, index, key, client, k)
        return task.update(lr, weights, memory, gradient, statistics, mask, pull), loss

    turns = (first + jnp.arange(steps, dtype=jnp.int32), task.indices(key, own, client, first, steps))
    (weights, _), losses = jax.lax.scan(step, (start, task.fresh(lr, start)), turns)
    return weights, losses.mean()


class Update(NamedTuple):
    """This is what a client's local round comes to."""

    weights: Weights  # as they arrive at its edge
    loss: Array  # mean over its steps
    memory: Memory  # its own rows


class Link(NamedTuple):
    """This is what a client knows of its cell besides the edge's model."""

    mask: Weights | None = None
    origin: Weights | None = None  # the model that the cell began the global round with
    control: Weights | None = None  # the cell's row of a correction's memory


NOTHING = Memory({}, {}, {})


def local_round(
    task: Task, way: Way, start: Weights, link: Link, own: Samples, memory: Memory, key: Array, client: Array,
    first: Array, steps: int, lr: Array,
) -> Update:  # fmt: skip
    """Make one client's part of an edge round, from its edge's model to what arrives there of its own."""
    pull = pull_of(way, start, link, memory)
    weights, loss = descend(task, start, link.mask, own, key, client, first, steps, lr, pull)
    if way.correction is None and way.uplink is None:
        return Update(weights, loss, memory)
    moved = tree.subtract(tree.split(weights, task.trainable.__contains__)[0], start)
    if way.correction is not None:
        memory = memory._replace(shift=way.correction.after_steps(memory.shift, link.control or {}, moved, steps * lr))
    if way.uplink is not None:
        arrived, lost = pass_uplink(way.uplink, draw_key(key, Hop.UPLINK, client, first), moved, memory.lost)
        weights, memory = weights | tree.add(arrived, start), memory._replace(lost=lost)
    return Update(weights, loss, memory)


def pull_of(way: Way, start: Weights, link: Link, memory: Memory) -> Pull | None:
    """Return what is added to a client's gradients: μ(w − anchor), and what its correction says; None for nothing."""
    if way.prox is None and way.correction is None:
        return None
    anchor = link.origin if way.prox_to_round and link.origin is not None else start
    shift = {} if way.correction is None else way.correction.shift(memory.shift, link.control or {})

    def pull(weights: Weights) -> Weights:
        added = {path: jnp.zeros_like(w) for path, w in weights.items()}
        if way.prox is not None:
            added = {path: way.prox * (w - anchor[path]) for path, w in weights.items()}
        return {path: a + shift[path] if path in shift else a for path, a in added.items()}

    return pull


def pass_uplink(codec: Codec, draw: Array, moved: Weights, lost: Weights) -> tuple[Weights, Weights]:
    """Return what arrives of an update, and what is lost of it where the client keeps that for its next one."""
    wanted = tree.add(moved, lost) if codec.feedback else moved
    arrived = codec.passed(draw, wanted)
    return arrived, tree.subtract(wanted, arrived) if codec.feedback else lost


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
