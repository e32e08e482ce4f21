"""These are the kinds of things that may happen to an update on its way from a client to the cloud, tier by tier.

    client      g ← g + μ(w − anchor) + shift                 a proximal term; a correction, which has a memory
    downlink    w ← decode(encode(w))                         edge → its clients, each edge round
    uplink      Δ = w_i − w,  w_i ← w + decode(encode(Δ))     client → edge (or cloud), each edge round
    edge        w ← combine(shares, w_1, w_2, …)              in place of the weighted mean
    backhaul    as the uplink, edge → cloud, each global round
    cloud       w ← combine(shares, w_1, w_2, …)              in place of the weighted mean over cells

Each is a value of pure functions; the room `updates` makes them, one idea in one file. What an algorithm's updates
undergo is its `Way`; the empty one is the plain algorithm, and costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jax import Array

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
class Correction:
    """A correction adds a vector to every gradient of a client, and learns from each round what it should be.

    Rows of `client` memory lie along an axis of clients, rows of `cell` memory along one of cells; all have the shapes
    of the trainable weights. The four functions are of one client, or of one cell.
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
    """(cell row, how far the cell's model lies from the merged one, H·E·γ) → the cell's row"""


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

    @property
    def keeps(self) -> bool:
        """Say whether clients have a memory."""
        return self.correction is not None or (self.uplink is not None and self.uplink.feedback)

    @property
    def collects(self) -> bool:
        """Say whether all clients' models of a cell are needed at once."""
        return self.keeps or self.edge_rule is not None


PLAIN = Way()
