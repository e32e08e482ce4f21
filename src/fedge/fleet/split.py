"""A split model's steps, compiled by halves: what a client computes, what its edge does, and what crosses the cut."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedge.core import tree
from fedge.core.client import NOTHING, Link, Samples, normalise, pull_of
from fedge.core.keys import Purpose, fold
from fedge.core.split import Downlink, Split, Uplink, client_backward, client_forward, edge_step
from fedge.core.tree import Weights
from fedge.fleet.work import Work
from fedge.net.tally import LABELS
from fedge.net.wire import NOTHING as NO_TENSORS
from fedge.net.wire import Form, Slot

ACTIVATIONS, GRADIENT = "activations", "gradient"
AT_CUT = "cut"  # the tensor that crosses it


def is_split(work: Work) -> bool:
    """Say whether activations cross a cut: they do where an edge holds a part of the model, or all of it."""
    return work.made.clock.ledger.cut is not None


class Cutting:
    """This knows where the model is cut."""

    def __init__(self, work: Work, cell: int) -> None:
        self.work, self.cell = work, cell
        stages, made = work.algorithm.client_stages or (), work.made
        at_edge = tuple(stage for stage in made.model.stages if stage not in stages)
        forward: Any = work.task.forward
        self.split = Split(forward, stages, at_edge, made.model.stage_of, work.task.objective)
        self.activations_form = self._crossing()

    # What crosses the cut

    def _crossing(self) -> Form:
        """Say what a client sends at each step: activations, or its inputs as they are stored; and the labels."""
        data, batch = self.work.job.data, self.work.task.batch
        x, y = (jax.ShapeDtypeStruct((batch, *a.shape[1:]), _on_device(a)) for a in (data.x, data.y))
        half = {p: w for p, w in self.work.stack_of(self.cell).weights.items() if self.work.at_client(p)}
        number, rows = (jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((), (batch,)))
        own = Samples(x, y, rows, number, number)
        at_cut, labels = jax.eval_shape(self._forward, half, own, rows, number, number)
        return {name: Slot(np.dtype(x.dtype).name, tuple(x.shape)) for name, x in ((AT_CUT, at_cut), (LABELS, labels))}

    @property
    def gradient_form(self) -> Form:
        return {AT_CUT: self.activations_form[AT_CUT]} if self.split.client else NO_TENSORS

    # What a client computes

    def forward(self, half: Weights, own: Samples, rows: Array, client: Any, iteration: Any) -> Any:
        """Return what a client sends of a minibatch."""
        return self.work.program("forward", lambda: self._forward)(half, own, rows, client, iteration)

    def _forward(self, half: Weights, own: Samples, rows: Array, client: Any, iteration: Any) -> tuple[Array, Array]:
        if not self.split.client:
            return own.x[rows], own.y[rows]
        x, y = self.work.task.inputs(own, rows)
        return tuple(client_forward(self.split, half, x, y, self._dropout(client, iteration)))  # type: ignore[return-value]

    def backward(
        self, half: Weights, memory: Any, began: Weights, link: Link, own: Samples, rows: Array, at_cut: Any,
        client: Any, iteration: Any,
    ) -> Any:  # fmt: skip
        """Return a client's half and its optimiser's memory after a step."""

        def program(
            half: Any, memory: Any, began: Any, link: Link, own: Any, rows: Any, at_cut: Any, i: Any, k: Any
        ) -> Any:
            work = self.work
            x, _ = work.task.inputs(own, rows)
            params, rest = tree.split(half, work.task.trainable.__contains__)
            gradient, statistics = client_backward(self.split, params, rest, x, Downlink(at_cut), self._dropout(i, k))
            pull = pull_of(work.way, began, link, NOTHING)
            return work.task.update(work.lr, half, memory, gradient, statistics, None, pull)

        make = self.work.program("backward", lambda: program)
        return make(half, memory, began, link, own, rows, at_cut, client, iteration)

    # What an edge computes

    def at_edge(self, common: Weights, at_cut: Any, labels: Any, client: Any, iteration: Any) -> Any:
        """Return the loss, the gradient and the statistics of the edge's half, and the gradient at the cut."""

        def program(common: Any, at_cut: Any, labels: Any, i: Any, k: Any) -> Any:
            task = self.work.task
            x = at_cut if self.split.client else normalise(at_cut, task.scale, task.dtype)
            params, rest = tree.split(common, task.trainable.__contains__)
            return edge_step(self.split, params, rest, Uplink(x, labels), self._dropout(i, k))

        return self.work.program("at edge", lambda: program)(common, at_cut, labels, client, iteration)

    def step(self, common: Weights, memory: Any, gradient: Weights, statistics: Weights) -> Any:
        """Return the edge's half and its optimiser's memory after a step."""

        def program(common: Any, memory: Any, gradient: Any, statistics: Any) -> Any:
            return self.work.task.update(self.work.lr, common, memory, gradient, statistics, None)

        return self.work.program("step", lambda: program)(common, memory, gradient, statistics)

    def _dropout(self, client: Any, iteration: Any) -> Array:
        return fold(self.work.key, Purpose.DROPOUT, client, iteration)


def _on_device(array: Any) -> Any:
    return jax.dtypes.canonicalize_dtype(array.dtype)
