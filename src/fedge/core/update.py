"""These are the kinds of things that may happen to an update on its way from a client to the cloud, tier by tier.

    client      g ← g + μ(w − anchor) + shift                 a proximal term; a correction, which has a memory
    downlink    w ← decode(encode(w))                         edge → its clients, each edge round
    uplink      Δ = w_i − w,  w_i ← w + decode(encode(Δ))     client → edge (or cloud), each edge round
    edge        w ← combine(shares, w_1, w_2, …)              in place of the weighted mean
    edge        w ← step(w, what it combined)                 an optimiser, which has a memory within a global round
    backhaul    as the uplink, edge → cloud, each global round
    cloud       w ← combine(shares, w_1, w_2, …)              in place of the weighted mean over cells

Each is a value of pure functions; the room `updates` makes them, one idea in one file. What an algorithm's updates
undergo is its `Way`; the empty one is the plain algorithm, and costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedge.core import tree
from fedge.core.keys import Purpose, fold, root
from fedge.core.tree import Weights

Message = Any
"""This is what is really sent: a pytree of arrays, whose shapes follow from the update's. Its bytes are billed."""


@dataclass(frozen=True)
class Codec:
    """A codec makes an update smaller. Paths and shapes of an update are known on both sides and are not sent."""

    name: str
    encode: Callable[[Array, Weights], Message]  # (key for its own draws, update) → message
    decode: Callable[[Message, Weights], Weights]  # (message, anything with the update's paths, shapes and dtypes)
    feedback: bool = False  # a client keeps what was lost and adds it to its next update

    def passed(self, key: Array, update: Weights) -> Weights:
        """Return what arrives of an update."""
        return self.decode(self.encode(key, update), update)

    def size(self, shapes: Mapping[str, Any]) -> int:
        """Count the bytes of one encoded update, from its shapes and dtypes (path → anything that has both)."""
        update = {path: jax.ShapeDtypeStruct(x.shape, x.dtype) for path, x in shapes.items()}
        message = jax.eval_shape(lambda u: self.encode(root(0), u), update)
        return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(message))


class Hop(IntEnum):
    """This names a link that a codec's draws are for. The numbers are part of recorded results: append only."""

    UPLINK = 0
    DOWNLINK = 1
    BACKHAUL = 2


def draw_key(key: Array, hop: Hop, sender: Array, iteration: Array) -> Array:
    return fold(key, Purpose.CODEC, hop, sender, iteration)


@dataclass(frozen=True)
class Rule:
    """A rule combines what came from several senders into one model, in place of their weighted mean.

    `combine` takes shares (n, with sum 1; a share of 0 means that nothing came from this sender, which then must not
    count at all) and models along a leading axis of n. `refusal` says why it cannot work with n senders, if it cannot.
    """

    name: str
    combine: Callable[[Array, Weights, Weights], Weights]  # (shares, models, the model they all began with)
    refusal: Callable[[int], str | None] = lambda n: None


@dataclass(frozen=True)
class EdgeServer:
    """An edge steps its model by what an edge round changed, and remembers something until the global round ends."""

    name: str
    start: Callable[[Weights], Any]  # (the model that a cell begins a global round with) → what its edge remembers
    step: Callable[[Weights, Weights, Weights | None, Any], tuple[Weights, Any]]
    """(the edge's model before, what it combined, the cell's mask, what it remembers) → its model, what it remembers"""


@dataclass(frozen=True)
class Correction:
    """A correction adds a vector to every gradient of a client, and learns from each round what it should be.

    Each client has a row of memory and each cell has one, in the shapes of the trainable weights; all are 0 at first.
    The functions are of one client, or of one cell. `up` and `down` say how many vectors as large as the model travel
    with each update, `once` how many a client is sent in each global round besides.
    """

    name: str
    persistent: bool  # a client keeps its row from one global round to the next; else rows begin each round at 0
    shift: Callable[[Weights, Weights], Weights]  # (client row, cell row) → what is added to a gradient
    after_steps: Callable[[Weights, Weights, Weights, Array], Weights]
    """(client row, cell row, how far the client moved from its edge's model, H·γ) → the client's row"""
    after_edge: Callable[[Weights, Weights, Array], Weights]
    """(client row, how far the edge's model moved, H·γ) → the client's row"""
    cell_after_edge: Callable[[Weights, Weights], Weights]
    """(cell row, mean change of its clients' rows by their shares of the whole cell) → the cell's row"""
    cell_after_cloud: Callable[[Weights, Weights, Array], Weights]
    """(cell row, how far the cell's model lies from the mean of all cells', H·E·γ) → the cell's row"""
    up: int = 0
    down: int = 0
    once: int = 0
    follows: bool = False  # clients and edges learn from the averages of their models, and so have to hear of them


@dataclass(frozen=True)
class Way:
    """This is all that happens to the updates of an algorithm; where everything is None they travel as they are."""

    prox: float | None = None  # μ
    prox_to_round: bool = False  # anchored at the model that the cell began the global round with, not the edge's
    correction: Correction | None = None
    uplink: Codec | None = None
    downlink: Codec | None = None
    backhaul: Codec | None = None
    edge_rule: Rule | None = None
    cloud_rule: Rule | None = None
    edge_server: EdgeServer | None = None

    @property
    def keeps(self) -> bool:
        """Say whether clients have a memory."""
        return self.correction is not None or self.feeds_back

    @property
    def feeds_back(self) -> bool:
        """Say whether clients keep what a codec lost."""
        return self.uplink is not None and self.uplink.feedback

    @property
    def collects(self) -> bool:
        """Say whether all clients' models of a cell are needed at once."""
        return self.keeps or self.edge_rule is not None


PLAIN = Way()


class Memory(NamedTuple):
    """This is what clients and cells keep, one row for each along a leading axis.

    `shift` is the correction's and `lost` what codecs took off; each is empty where there is nothing of its kind.
    """

    shift: Weights
    lost: Weights
    control: Weights  # of cells

    @classmethod
    def empty(cls, way: Way, model: Weights, clients: int, cells: int) -> Memory:
        """Make the memory before the first round; `model` has the trainable weights, whose values do not count."""

        def rows(count: int, wanted: bool) -> Weights:
            return {p: jnp.zeros((count, *w.shape), w.dtype) for p, w in model.items()} if wanted else {}

        corrects = way.correction is not None
        lasting = way.correction is not None and way.correction.persistent
        return cls(rows(clients, lasting), rows(clients, way.feeds_back), rows(cells, corrects))

    def begin_round(self, way: Way, clients: int) -> Memory:
        """Return the memory with which a global round begins: what does not last from one to the next is 0."""
        if way.correction is None or way.correction.persistent:
            return self
        return self._replace(shift={p: jnp.zeros((clients, *w.shape[1:]), w.dtype) for p, w in self.control.items()})


class Kept(NamedTuple):
    """This is the state of an algorithm whose clients have a memory."""

    state: Any  # the algorithm's own
    memory: Memory


def after_cloud(way: Way, control: Weights, shares: Array, models: Weights, work: Array) -> Weights:
    """Return the cells' rows after the cloud has averaged; `work` is H·E·γ."""
    assert way.correction is not None
    own = {path: models[path] for path in control}
    apart = tree.subtract(own, tree.weighted_sum(shares, own))
    return jax.vmap(way.correction.cell_after_cloud, (0, 0, None))(control, apart, work)


def pass_cells(
    codec: Codec, hop: Hop, values: Weights, sent: Callable[[str], bool], ids: Any, iteration: Array,
    key: Array,
) -> Weights:  # fmt: skip
    """Return what arrives of each cell's values through a codec; paths that are not `sent` through it stay."""
    coded, rest = tree.split(values, sent)
    arrived = jax.vmap(lambda cell, own: codec.passed(draw_key(key, hop, cell, iteration), own))(ids, coded)
    return arrived | rest
