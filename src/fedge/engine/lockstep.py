"""A cell whose clients advance in lockstep because they share a part of their model, in three ways of sharing it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from fedge.core import tree
from fedge.core.client import NOTHING, Data, Link, Pull, Task, pull_of
from fedge.core.contract import Sharing
from fedge.core.tree import Weights
from fedge.core.update import Hop, Way, draw_key


class Cell(NamedTuple):
    task: Task
    way: Way
    shared: Callable[[str], bool]
    mask: Weights | None
    origin: Weights | None  # the model that the cell began the global round with, where clients need it
    client: Array  # who takes part
    share: Array  # with which weight; a padding slot has 0
    turns: tuple[Array, Array]  # iterations; samples of each iteration and client
    lr: Array
    data: Data
    key: Array
    side_by_side: bool  # else one client after the other, within each iteration

    def gradient(self, weights: Weights, index: Array, i: Array, k: Array) -> tuple[Array, Weights, Weights]:
        return self.task.gradient(weights, self.data, index, self.key, i, k)

    def update(
        self, weights: Weights, memory: Any, gradient: Weights, statistics: Weights, pull: Pull | None = None
    ) -> tuple[Weights, Any]:
        return self.task.update(self.lr, weights, memory, gradient, statistics, self.mask, pull)

    def pull(self, start: Weights) -> Pull | None:
        """Return what pulls a client's own part, which every client began with as `start`."""
        _, start = self.divide(start)
        origin = None if self.origin is None else self.divide(self.origin)[1]
        found = pull_of(self.way, start, Link(origin=origin), NOTHING)
        if found is None:
            return None
        # What is shared is not the client's to hold back.
        return lambda weights: {p: jnp.zeros_like(w) for p, w in weights.items()} | found(self.divide(weights)[1])

    def arrived(self, start: Weights, replicas: Weights) -> Weights:
        """Return clients' models as they arrive at the edge, to which only their own parts travel."""
        codec, iteration = self.way.uplink, self.turns[0][0]
        if codec is None:
            return replicas
        sent = [p for p in self.divide(replicas)[1] if p in self.task.trainable]
        moved = {p: replicas[p] - start[p] for p in sent}

        def passed(i: Array, own: Weights) -> Weights:
            return codec.passed(draw_key(self.key, Hop.UPLINK, i, iteration), own)

        return replicas | tree.add(jax.vmap(passed)(self.client, moved), start)

    def replicate(self, weights: Weights) -> tuple[Weights, Any]:
        """A copy for each client, with fresh memory."""
        copies = tree.repeat(weights, len(self.client))
        return copies, jax.vmap(partial(self.task.fresh, self.lr), axis_size=len(self.client))(copies)

    def each(self, advance: Callable[..., tuple[Any, Any]], states: Any, *operands: Array) -> tuple[Any, Any]:
        """Advance the state of each client; return the states after it and what else comes back, stacked.

        One client after the other keeps a CPU core's cache warm, and small matrix products are faster without a batch
        axis: a step of the CNN takes three quarters of the time. States are changed in place, or they would be copied.
        """
        if self.side_by_side:
            return jax.vmap(advance)(states, *operands)

        def one(states: Any, member: tuple[Array, tuple[Array, ...]]) -> tuple[Any, Any]:
            i, operands = member
            state, found = advance(jax.tree.map(lambda a: a[i], states), *operands)
            return jax.tree.map(lambda a, new: a.at[i].set(new), states, state), found

        return lax.scan(one, states, (jnp.arange(len(self.client)), operands))

    def divide(self, weights: Weights) -> tuple[Weights, Weights]:
        """(shared, private)."""
        return tree.split(weights, self.shared)


def mean(cell: Cell, weights: Weights) -> tuple[Weights, Array]:
    """Private paths per client; shared paths once, stepped by the mean gradient."""
    common, private = cell.divide(weights)
    pull = cell.pull(weights)

    def step(carry: Any, turn: tuple[Array, Array]) -> tuple[Any, Array]:
        clients, (common, memory) = carry
        k, index = turn

        def advance(client: tuple[Weights, Any], index: Array, i: Array) -> tuple[Any, Any]:
            own, own_memory = client
            loss, gradient, statistics = cell.gradient(own | common, index, i, k)
            (g_common, g_own), (s_common, s_own) = cell.divide(gradient), cell.divide(statistics)
            return cell.update(own, own_memory, g_own, s_own, pull), (g_common, s_common, loss)

        clients, (g_common, s_common, losses) = cell.each(advance, clients, index, cell.client)
        mean_g, mean_s = tree.weighted_sum(cell.share, g_common), tree.weighted_sum(cell.share, s_common)
        return (clients, cell.update(common, memory, mean_g, mean_s)), cell.share @ losses

    carry = (cell.replicate(private), (common, cell.task.fresh(cell.lr, common)))
    ((replicas, _), (common, _)), losses = lax.scan(step, carry, cell.turns)
    return tree.weighted_sum(cell.share, cell.arrived(private, replicas)) | common, losses.mean()


def copies(cell: Cell, weights: Weights) -> tuple[Weights, Array]:
    """Every client has the whole model; shared paths are averaged after each step."""
    pull = cell.pull(weights)

    def step(carry: Any, turn: tuple[Array, Array]) -> tuple[Any, Array]:
        k, index = turn

        def advance(client: tuple[Weights, Any], index: Array, i: Array) -> tuple[Any, Array]:
            own, memory = client
            loss, gradient, statistics = cell.gradient(own, index, i, k)
            return cell.update(own, memory, gradient, statistics, pull), loss

        (replicas, memories), losses = cell.each(advance, carry, index, cell.client)
        averaged = tree.weighted_sum(cell.share, cell.divide(replicas)[0])
        return (replicas | tree.repeat(averaged, len(cell.client)), memories), cell.share @ losses

    (replicas, _), losses = lax.scan(step, cell.replicate(weights), cell.turns)
    return tree.weighted_sum(cell.share, cell.arrived(weights, replicas)), losses.mean()


def sequential(cell: Cell, weights: Weights) -> tuple[Weights, Array]:
    """Shared paths once, stepped by one client after the other; a padding slot does not step them."""
    common, private = cell.divide(weights)
    pull = cell.pull(weights)

    def step(carry: Any, turn: tuple[Array, Array]) -> tuple[Any, Array]:
        (replicas, memories), server = carry
        k, index = turn

        def one(server: Any, member: Any) -> tuple[Any, Any]:
            common, memory = server
            own, own_memory, index, i, counts = member
            loss, gradient, statistics = cell.gradient(own | common, index, i, k)
            (g_common, g_own), (s_common, s_own) = cell.divide(gradient), cell.divide(statistics)
            stepped = cell.update(common, memory, g_common, s_common)
            server = jax.tree.map(lambda new, old: jnp.where(counts, new, old), stepped, server)
            return server, (cell.update(own, own_memory, g_own, s_own, pull), loss)

        members = (replicas, memories, index, cell.client, cell.share > 0)
        server, (clients, losses) = lax.scan(one, server, members)
        return (clients, server), cell.share @ losses

    carry = (cell.replicate(private), (common, cell.task.fresh(cell.lr, common)))
    ((replicas, _), (common, _)), losses = lax.scan(step, carry, cell.turns)
    return tree.weighted_sum(cell.share, cell.arrived(private, replicas)) | common, losses.mean()


LOCKSTEP = {Sharing.MEAN: mean, Sharing.COPIES: copies, Sharing.SEQUENTIAL: sequential}
