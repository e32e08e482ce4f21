"""What a client and an edge must hold at their worst moment, from the shapes of what they compute and nothing else.

    client   its edge's model and its own, a gradient, the optimiser's state, what corrections and codecs remember, its
             own samples, and the activations of a minibatch with what a step needs besides
    edge     its model, the sum of its clients' before and after the one that is arriving, and as much of a correction's
             rows; where a rule needs that, all models, side by side once more, and what the rule holds; of a split
             model, its half, the gradients and messages of its clients, and a step

A process holds more than the arrays of its program: packed operands of matrix products and what an allocator rounds up
are `BESIDES` of them. What a step held goes a moment after its results are there: a client of a split model that goes
on from backward to forward holds both, an edge that answers its clients one after the other `LAG` of a step besides.
`benchmarks/client_memory.py` measures all of this. Python and JAX, some 250 MB, are not in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedge.core import tree
from fedge.core.client import Link, Samples, Task, local_round
from fedge.core.contract import Algorithm, Sharing
from fedge.core.keys import root
from fedge.core.split import Downlink, Split, Uplink, client_backward, client_forward, edge_step
from fedge.core.update import Memory, Way
from fedge.cost.ledger import StackShapes
from fedge.cost.live import bytes_of, peak_bytes

BESIDES = 0.15  # of what a program holds
LAG = 0.5  # of what the step before held


class Holding(NamedTuple):
    """This is what a client or an edge holds, in bytes."""

    models: int
    gradient: int
    optimiser: int
    remembered: int  # by corrections, codecs and proximal terms
    samples: int
    activations: int  # of a minibatch, with what a step and a codec need besides
    process: int  # what a process needs beside all these

    @property
    def total(self) -> int:
        return sum(self)


@dataclass(frozen=True)
class Setting:
    """This is what memory depends on besides the shapes of a model."""

    algorithm: Algorithm
    task: Task
    split: Split | None  # where clients hold a part of the model only
    sample: Any  # the shape of a stored sample, and of its label
    label: Any
    most_samples: int  # of a client
    most_clients: int  # of a cell, in an edge round


def client_holding(at: Setting, stack: StackShapes) -> Holding:
    """Return what a client holds at most whose cell has a model of these shapes."""
    if at.split is not None:
        return _half_client(at, at.split, stack.shapes)
    weights: dict[str, Any] = stack.shapes
    task, way = at.task, at.algorithm.way
    trained = {path: w for path, w in weights.items() if path in task.trainable}
    row = trained if way.correction is not None else {}
    memory = Memory(row, trained if way.feeds_back else {}, {})
    link = Link(trained if stack.masked else None, weights if way.prox_to_round else None, row or None)
    own = Samples(
        _shape((at.most_samples, *at.sample.shape), at.sample.dtype),
        _shape((at.most_samples, *at.label.shape), at.label.dtype),
        *(_shape(shape, jnp.int32) for shape in ((at.most_samples,), (), ())),
    )

    def role(way: Way, weights: Any, link: Link, own: Samples, memory: Memory, client: Any, lr: Any) -> Any:
        steps = at.algorithm.schedule.local_steps
        return local_round(task, way, weights, link, own, memory, root(0), client, client, steps, lr)

    client, lr = _shape((), jnp.int32), _shape((), task.dtype)
    given = bytes_of((weights, link, own, memory))
    held = given + peak_bytes(lambda *a: role(way, *a), weights, link, own, memory, client, lr)
    models, gradient, optimiser = 2 * bytes_of(weights), bytes_of(trained), _optimiser_bytes(task, trained, lr)
    return _whole(held, models, gradient, optimiser, bytes_of((link, memory)), bytes_of(own))


def _half_client(at: Setting, split: Split, weights: dict[str, Any]) -> Holding:
    """Return what the client of a split model holds: its half, and one minibatch on its way up or down."""
    half = {path: w for path, w in weights.items() if split.on_client(path)}
    params, rest = tree.split(half, at.task.trainable.__contains__)
    x, y = _batch(at)
    lr = _shape((), at.task.dtype)

    def up(half: Any, x: Any, y: Any) -> Uplink:
        return client_forward(split, half, x, y, root(0))

    def down(params: Any, rest: Any, x: Any, gradient: Any, memory: Any, lr: Any) -> Any:
        found, statistics = client_backward(split, params, rest, x, Downlink(gradient), root(0))
        return at.task.update(lr, params | rest, memory, found, statistics, None)

    message = jax.eval_shape(up, half, x, y)
    memory = jax.eval_shape(lambda lr, w: at.task.fresh(lr, w), lr, params)
    samples = at.most_samples * (bytes_of(at.sample) + bytes_of(at.label))
    below = bytes_of(message) + peak_bytes(down, params, rest, x, message.activations, memory, lr)
    step = peak_bytes(up, half, x, y) + below
    held = 2 * bytes_of(half) + bytes_of(memory) + samples + bytes_of((x, y)) + step
    return _whole(held, 2 * bytes_of(half), bytes_of(params), bytes_of(memory), 0, samples)


def edge_holding(at: Setting, stack: StackShapes) -> Holding:
    """Return what the edge of a cell holds at most whose model has these shapes."""
    weights: dict[str, Any] = stack.shapes
    way = at.algorithm.way
    trained = {path: w for path, w in weights.items() if path in at.task.trainable}
    rows = 3 * bytes_of(trained) if way.correction is not None else 0
    if at.split is None:
        size, rule = bytes_of(weights), way.edge_rule
        moments = 0 if way.edge_server is None else bytes_of(jax.eval_shape(way.edge_server.start, weights))
        models, combining = 4 * size, 0
        codec = way.uplink
        coded = 0 if codec is None else bytes_of(jax.eval_shape(lambda u: codec.encode(root(0), u), trained))
        if rule is not None:
            models = (1 + 2 * at.most_clients) * size
            stacked = {path: _shape((at.most_clients, *w.shape), w.dtype) for path, w in weights.items()}
            combining = peak_bytes(rule.combine, _shape((at.most_clients,), at.task.dtype), stacked, weights)
        return Holding(models, 0, moments, rows, 0, coded + combining, round(BESIDES * combining))
    split = at.split
    half = {path: w for path, w in weights.items() if split.on_client(path)}
    own = {path: w for path, w in weights.items() if path not in half}
    params, rest = tree.split(own, at.task.trainable.__contains__)
    x, y = _batch(at)
    up = jax.eval_shape(lambda half, x, y: client_forward(split, half, x, y, root(0)), half, x, y)

    def step(params: Any, rest: Any, message: Uplink) -> Any:
        return edge_step(split, params, rest, message, root(0))

    copies = at.most_clients if at.algorithm.sharing is Sharing.COPIES else 1
    lr = _shape((), at.task.dtype)
    optimiser = copies * _optimiser_bytes(at.task, params, lr)
    found = 1 if at.algorithm.sharing is Sharing.SEQUENTIAL else at.most_clients
    models, gradients = 4 * bytes_of(half) + (1 + copies) * bytes_of(own), found * bytes_of(params)
    arrived, held = at.most_clients * bytes_of(up), peak_bytes(step, params, rest, up)
    held += round(LAG * held) if at.most_clients > 1 else 0
    return Holding(models, gradients, optimiser, 0, 0, arrived + held, round(BESIDES * held))


def _whole(held: int, models: int, gradient: int, optimiser: int, remembered: int, samples: int) -> Holding:
    known = models + gradient + optimiser + remembered + samples
    rest = max(held - known, 0)
    return Holding(models, gradient, optimiser, remembered, samples, rest, round(BESIDES * (known + rest)))


def _optimiser_bytes(task: Task, trained: Any, lr: Any) -> int:
    return bytes_of(jax.eval_shape(lambda lr, w: task.fresh(lr, w), lr, trained))


def _batch(at: Setting) -> tuple[Any, Any]:
    """Return the shapes of a minibatch as the model takes it, and of its labels."""
    count = at.task.batch
    x, y = (_shape((count, *one.shape), one.dtype) for one in (at.sample, at.label))
    return jax.eval_shape(at.task.inputs, Samples(x, y, None, None, None), _shape((count,), jnp.int32))


def _shape(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(dtype))
