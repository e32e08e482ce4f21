"""A split model steps by messages: the client never shows its weights or inputs, the edge never its own weights.

    client_forward    the client's half, its samples        → activations at the cut, and labels
    edge_step         the edge's half, that message         → its own gradient, and the loss's gradient at the cut
    client_backward   the client's half, its samples, that  → the client's gradient

These are pure functions with typed messages: what a simulator runs in one process, a network may run in two. Together
they give the gradients of the whole model, since cutting a chain of functions changes nothing about its derivative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax
from jax import Array

from fedge.core.objective import Objective
from fedge.core.tree import Weights


class StagedForward(Protocol):
    def __call__(
        self, weights: Weights, x: Array, *, train: bool, key: Array, stages: tuple[str, ...] | None = None
    ) -> tuple[Array, Weights]:
        """Return the outputs of these stages and their running statistics after the batch.

        The weights of other stages need not be there.
        """
        ...


class Split(NamedTuple):
    """This says where a model is cut, the stages of the client and those of its edge, and what it is trained for."""

    forward: StagedForward
    client: tuple[str, ...]
    edge: tuple[str, ...]
    stage_of: Callable[[str], str]
    objective: Objective

    def on_client(self, path: str) -> bool:
        return self.stage_of(path) in self.client


class Uplink(NamedTuple):
    activations: Array
    labels: Array


class Downlink(NamedTuple):
    gradient: Array  # of the batch's mean loss, with respect to the activations


def client_forward(split: Split, half: Weights, x: Array, y: Array, key: Array) -> Uplink:
    activations, _ = split.forward(half, x, train=True, key=key, stages=split.client)
    return Uplink(activations, y)


def edge_step(
    split: Split, params: Weights, rest: Weights, message: Uplink, key: Array
) -> tuple[Array, Weights, Weights, Downlink]:
    """Return the loss, the gradient and statistics of the edge's half, and what goes back to the client."""

    def loss(params: Weights, activations: Array) -> tuple[Array, Weights]:
        outputs, statistics = split.forward(params | rest, activations, train=True, key=key, stages=split.edge)
        return split.objective.loss(outputs, message.labels).mean(), statistics

    step = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
    (value, statistics), (gradient, cut) = step(params, message.activations)
    return value, gradient, statistics, Downlink(cut)


def client_backward(
    split: Split, params: Weights, rest: Weights, x: Array, message: Downlink, key: Array
) -> tuple[Weights, Weights]:
    """Return the gradient and statistics of the client's half."""

    def outputs(params: Weights) -> tuple[Array, Weights]:
        return split.forward(params | rest, x, train=True, key=key, stages=split.client)

    _, backward, statistics = jax.vjp(outputs, params, has_aux=True)
    (gradient,) = backward(message.gradient)
    return gradient, statistics
