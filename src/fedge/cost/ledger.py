"""Count the bytes per link and tier, from the models that are really handed out.

    client_to_edge, edge_to_client    each participating client, each edge round; where the model is split, its own
                                      half, and at every iteration activations up and gradients down
    labels_to_edge                    with the activations of a split model
    edge_to_cloud, cloud_to_edge      each edge, each global round
    edge_to_edge                      each direction of each link, each gossip exchange
    client_to_cloud, cloud_to_client  each participating client, each global round, where there are no edges

What is encoded counts as it is sent, from the shapes of the message; what a correction sends besides counts too.
Downlinks are counted too; the papers' formulas count uplinks only, and `clock` follows them unless told otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from fedge.core.contract import Algorithm, Cloud, Direct, Gossip, Round, Stack, State
from fedge.core.keys import Purpose, fold
from fedge.core.sampling import draw_participants, participants
from fedge.core.update import Codec

if TYPE_CHECKING:
    import networkx as nx

AHEAD = 64  # rounds that are counted together, and edge rounds whose participants are drawn together
DRAWS = 2**22  # of clients, at most, in one call: 16 MB

Links = dict[str, NDArray[np.int64]]
"""tier → bytes on each of its links: one per client, per edge, or per direction of a link between edges."""


class Cut(NamedTuple):
    """This is what crosses a split model's cut at each iteration, in bytes, and who computes how much."""

    up: int  # activations of a minibatch
    down: int  # their gradients
    labels: int
    client_work: float  # share of a step's multiply-adds on the client


class Ways(NamedTuple):
    """This is the size of what travels on a link, one number per cell."""

    up: NDArray[np.int64]
    down: NDArray[np.int64]
    once: NDArray[np.int64]  # down, once in each global round


class StackShapes(NamedTuple):
    """These are the shapes of one cell's model in a stack of cells; `masked` says whether a mask takes some of it."""

    ids: tuple[int, ...]
    shapes: dict[str, jax.ShapeDtypeStruct]
    masked: bool


@dataclass(frozen=True, eq=False)
class Ledger:
    algorithm: Algorithm
    state: State  # any state of the run: its shapes count
    key: Array
    trainable: frozenset[str]
    participation: float = 1.0
    cut: Cut | None = None
    _sizes: dict[tuple[int, bool], NDArray[np.int64]] = field(default_factory=dict)
    _encoded: dict[tuple[str, bool], NDArray[np.int64]] = field(default_factory=dict)
    _drawn: dict[int, list[NDArray[np.int32]]] = field(default_factory=dict)

    @cached_property
    def _entries(self) -> Callable[[Array, Array], tuple[Array, Array]]:
        """Compile (rounds, key) → numbers in each cell's model, and in a client's part of it, without masked ones."""
        shapes, cells_in_all = jax.eval_shape(lambda s: s, self.state), self.algorithm.topology.cells

        def count(index: Array, key: Array) -> tuple[Array, Array]:
            key = fold(key, Purpose.ALGORITHM, index)
            total = own = jnp.zeros(cells_in_all, jnp.int32)
            for stack in self._deal(jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes), index, key):
                for path, w in stack.weights.items():
                    owned = jnp.int32(math.prod(w.shape[1:]))
                    if stack.mask is not None and path in stack.mask:
                        owned = (stack.mask[path].reshape(len(stack.ids), -1) != 0).sum(1, dtype=jnp.int32)
                    total = total.at[np.array(stack.ids)].add(owned)
                    if not self.at_edge(path):
                        own = own.at[np.array(stack.ids)].add(owned)
            return total, own

        return jax.jit(jax.vmap(count, (0, None)))

    def at_edge(self, path: str) -> bool:
        """Say whether this part of a split model lies at the edge only."""
        return self.algorithm.shared is not None and self.algorithm.shared(path)

    def _deal(self, state: State, index: Array, key: Array) -> tuple[Stack, ...]:
        constants = jax.tree.map(jnp.asarray, self.algorithm.constants)
        weight = jnp.asarray(self.algorithm.topology.cell_weight)
        return self.algorithm.deal(state, Round(index, key, weight, constants))

    @cached_property
    def stacks(self) -> list[StackShapes]:
        """List the shapes of what cells are handed, which never change between rounds."""
        found: list[StackShapes] = []

        def look(state: State, key: Array) -> None:
            for stack in self._deal(state, jnp.int32(0), key):
                shapes = {p: jax.ShapeDtypeStruct(w.shape[1:], w.dtype) for p, w in stack.weights.items()}
                found.append(StackShapes(stack.ids, shapes, bool(stack.mask)))

        jax.eval_shape(look, self.state, self.key)
        return found

    @cached_property
    def alike(self) -> bool:
        """Say whether models have the same size in every round: what a mask leaves of them may change."""
        return not any(stack.masked for stack in self.stacks)

    @property
    def steady(self) -> bool:
        """Say whether every link carries the same in every round."""
        return self.alike and self.participation == 1

    def cell_bytes(self, index: int, *, client: bool = False) -> NDArray[np.int64]:
        """Return the size of each cell's model in global round `index`, or of what its clients hold and send of it."""
        if self.alike:
            return self._fixed_bytes[int(client)]
        if (index, client) not in self._sizes:
            width = next(iter(self.stacks[0].shapes.values())).dtype.itemsize
            rounds = np.arange(index, index + AHEAD, dtype=np.int32)
            for whose, counts in zip((False, True), self._entries(jnp.asarray(rounds), self.key), strict=True):
                sizes = width * np.asarray(counts).astype(np.int64)
                self._sizes.update({(int(r), whose): size for r, size in zip(rounds, sizes, strict=True)})
        return self._sizes[index, client]

    @cached_property
    def _fixed_bytes(self) -> NDArray[np.int64]:
        """Return the size of each cell's model, and of a client's part of it, where no round differs from another."""
        found = np.zeros((2, self.algorithm.topology.cells), np.int64)
        for stack in self.stacks:
            for path, shape in stack.shapes.items():
                size = math.prod(shape.shape) * shape.dtype.itemsize
                found[0, list(stack.ids)] += size
                if self.algorithm.shared is None or not self.algorithm.shared(path):
                    found[1, list(stack.ids)] += size
        return found

    def client_bytes(self, index: int) -> Ways:
        """Return what a client of each cell sends and gets in an edge round, and what it gets once a global round."""
        way, whole = self.algorithm.way, self.cell_bytes(index, client=True)
        up = whole if way.uplink is None else self._through(way.uplink, client=True)
        down = whole if way.downlink is None else self._through(way.downlink, client=True)
        once = whole if self.sends_origin else np.zeros_like(whole)
        if (extra := way.correction) is None:
            return Ways(up, down, once)
        return Ways(up + extra.up * self._row, down + extra.down * self._row, once + extra.once * self._row)

    @property
    def sends_origin(self) -> bool:
        """Say whether clients are sent the model that their cell began a global round with, which they are held to,
        on its own: not all of them are there at the start, or what they get there is encoded."""
        way, rounds = self.algorithm.way, self.algorithm.schedule.edge_rounds
        absent = self.participation < 1 and rounds > 1
        return way.prox is not None and way.prox_to_round and (absent or way.downlink is not None)

    def edge_bytes(self, index: int) -> Ways:
        """Return what each edge sends to the cloud and gets from it in a global round."""
        whole, codec = self.cell_bytes(index), self.algorithm.way.backhaul
        up = whole if codec is None else self._through(codec, client=False)
        return Ways(up, whole, np.zeros_like(whole))

    def _through(self, codec: Codec, *, client: bool) -> NDArray[np.int64]:
        """Return the bytes of each cell's model, or of its clients' part, with what is trained in a codec's form."""
        if (codec.name, client) not in self._encoded:
            sizes = np.zeros(self.algorithm.topology.cells, np.int64)
            for stack in self.stacks:
                held = {p: s for p, s in stack.shapes.items() if not (client and self.at_edge(p))}
                coded = {p: s for p, s in held.items() if p in self.trainable}
                rest = sum(s.size * s.dtype.itemsize for p, s in held.items() if p not in coded)
                sizes[list(stack.ids)] = codec.size(coded) + rest
            self._encoded[codec.name, client] = sizes
        return self._encoded[codec.name, client]

    @cached_property
    def _row(self) -> NDArray[np.int64]:
        """Return the bytes of a row of a correction's memory: as many numbers as a client trains."""
        sizes = np.zeros(self.algorithm.topology.cells, np.int64)
        for stack in self.stacks:
            own = [s for p, s in stack.shapes.items() if p in self.trainable]
            sizes[list(stack.ids)] = sum(s.size * s.dtype.itemsize for s in own)
        return sizes

    def participants(self, number: int) -> list[NDArray[np.int32]]:
        """List the clients that take part in edge round `number`, cell by cell; many rounds are drawn in one call."""
        roster = self.algorithm.topology.roster
        if self.participation == 1:
            return roster
        if number not in self._drawn:
            rounds = max(1, min(AHEAD, DRAWS // self.algorithm.topology.clients))
            numbers = range(number, number + rounds)
            self._drawn.clear()
            drawn = draw_participants(self.key, roster, numbers, self.participation)
            self._drawn.update(zip(numbers, drawn, strict=True))
        return self._drawn[number]

    @cached_property
    def edge_links(self) -> list[tuple[int, int]]:
        """List both directions of each link between edges, in a fixed order; none where edges do not gossip."""
        gossip = self.algorithm.gossip
        return [] if gossip is None else both_directions(gossip.graph)

    def round(self, index: int) -> Links:
        """Count the bytes sent in global round `index`, link by link."""
        rounds = self.algorithm.schedule.edge_rounds
        turns = np.zeros(self.algorithm.topology.clients, np.int64)
        if self.participation == 1:
            turns += rounds
        else:
            for a in range(rounds):
                for own in self.participants(index * rounds + a):
                    turns[own] += 1
        return self._links(index, turns)

    def totals(self, index: int) -> dict[str, int]:
        """Count the bytes sent in global round `index`, tier by tier. Nothing is drawn: as many clients of a cell take
        part in every edge round, and they send the same, so one stands for all of them; unless something is sent once
        to each that takes part in a global round."""
        if self.client_bytes(index).once.any():
            return totals(self.round(index))
        topology, rounds = self.algorithm.topology, self.algorithm.schedule.edge_rounds
        turns = np.zeros(topology.clients, np.int64)
        for own in topology.roster:
            turns[own[0]] = rounds * participants(len(own), self.participation)
        return totals(self._links(index, turns))

    def _links(self, index: int, turns: NDArray[np.int64]) -> Links:
        """Count the bytes on each link in a global round in which each client has taken part so many times."""
        algorithm, schedule = self.algorithm, self.algorithm.schedule
        own, far, cell = self.client_bytes(index), self.edge_bytes(index), algorithm.topology.cell
        up, down = turns * own.up[cell], turns * own.down[cell] + (turns > 0).astype(np.int64) * own.once[cell]
        match algorithm.exchange:
            case Direct():
                return {"client_to_cloud": up, "cloud_to_client": down}
            case Cloud():
                links = {"client_to_edge": up, "edge_to_client": down}
                if self.cut is not None:
                    steps = turns * schedule.local_steps
                    links["client_to_edge"] += steps * self.cut.up
                    links["edge_to_client"] += steps * self.cut.down
                    links["labels_to_edge"] = steps * self.cut.labels
                return links | {"edge_to_cloud": far.up.copy(), "cloud_to_edge": far.down.copy()}
            case Gossip(steps=steps):
                between = steps * self.cell_bytes(index)[np.array([sender for sender, _ in self.edge_links], np.int64)]
                return {"client_to_edge": up, "edge_to_client": down, "edge_to_edge": between}


def both_directions(graph: nx.Graph) -> list[tuple[int, int]]:
    """List both directions of every link, in a fixed order."""
    links = sorted(tuple(sorted(link)) for link in graph.edges)
    return [pair for a, b in links for pair in ((a, b), (b, a))]


def totals(links: Links) -> dict[str, int]:
    return {tier: int(each.sum()) for tier, each in links.items()}
