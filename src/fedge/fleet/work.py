"""Work is what every node knows of its experiment: the forms of messages, and the compiled steps of all roles.

All nodes build it from the same keys, so they agree on every shape, draw and weight, and none of that is ever sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fedge.core.client import Link, Samples, Update, local_round
from fedge.core.contract import Round, Stack, State
from fedge.core.keys import Purpose, fold
from fedge.core.sampling import draw_participants
from fedge.core.tree import Weights
from fedge.core.update import Codec, Hop, Memory, draw_key
from fedge.errors import ConfigError
from fedge.experiment.build import Experiment
from fedge.net.wire import Form, Slot

Numbers = dict[str, Any]  # path → array of the host
CODED = "coded:"  # before the numbers of an encoded message's tensors


class Work:
    """This is made once in a process; its compiled steps are shared by all roles that the process plays."""

    def __init__(self, made: Experiment) -> None:
        self.made, self.job = made, made.job
        self.algorithm, self.task, self.way = made.job.algorithm, made.job.task, made.job.algorithm.way
        self.schedule, self.topology = self.algorithm.schedule, self.algorithm.topology
        self.key, self.lr = made.job.key, jnp.asarray(made.job.lr, self.task.dtype)
        require_carried(made)

    # Who takes part

    def participants(self, cell: int, number: int) -> list[int]:
        """Draw the clients of a cell in edge round `number`, in the order in which the simulator takes them."""
        (drawn,) = draw_participants(self.key, self.topology.roster, [number], self.job.participation)
        return [int(client) for client in drawn[cell]]

    def now(self, index: int) -> Round:
        """Return what a role may know of a global round."""
        cell_weight = jnp.asarray(self.topology.cell_weight, self.task.dtype)
        constants = jax.tree.map(jnp.asarray, self.algorithm.constants)
        return Round(jnp.int32(index), fold(self.key, Purpose.ALGORITHM, index), cell_weight, constants)

    def first(self, index: int, edge_round: int) -> int:
        """Return the first iteration of an edge round."""
        return index * self.schedule.period + edge_round * self.schedule.local_steps

    def turn(self, index: int, edge_round: int) -> int:
        """Count edge rounds from the start of the run."""
        return index * self.schedule.edge_rounds + edge_round

    @cached_property
    def sends_origin(self) -> bool:
        """Say whether clients are sent the model that their global round began with on its own."""
        return self.made.clock.ledger.sends_origin

    # What may come

    @cached_property
    def stacks(self) -> list[Stack]:
        """List the stacks of cells that are dealt, with shapes in the place of arrays; they never change."""
        found: list[Stack] = []

        def look(state: State) -> None:
            found.extend(self.algorithm.deal(state, self.now(0)))

        jax.eval_shape(look, self.made.clock.ledger.state)
        return [
            Stack(s.ids, jax.tree.map(lambda w: jax.ShapeDtypeStruct(w.shape[1:], w.dtype), s.weights), s.mask)
            for s in found
        ]  # fmt: skip

    def stack_of(self, cell: int) -> Stack:
        return next(stack for stack in self.stacks if cell in stack.ids)

    def at_client(self, path: str) -> bool:
        """Say whether a client holds this part of the model."""
        return self.algorithm.shared is None or not self.algorithm.shared(path)

    def model_form(self, cell: int, *, client: bool = False) -> Form:
        """Say what a cell's model, or its clients' part of it, looks like on a wire."""
        stack = self.stack_of(cell)
        return {
            path: Slot(np.dtype(shape.dtype).name, tuple(shape.shape), path in (stack.mask or {}))
            for path, shape in stack.weights.items()
            if not client or self.at_client(path)
        }

    def form(self, cell: int, codec: Codec | None, *, client: bool) -> Form:
        """Say what comes of a cell's model where its trained part travels through a codec."""
        whole = self.model_form(cell, client=client)
        if codec is None:
            return whole
        coded = {p: self.stack_of(cell).weights[p] for p in whole if p in self.task.trainable}
        message = jax.eval_shape(lambda u: codec.encode(self.key, u), coded)
        leaves = jax.tree.leaves(message)
        rest = {path: slot for path, slot in whole.items() if path not in coded}
        return rest | {f"{CODED}{n}": Slot(np.dtype(x.dtype).name, tuple(x.shape)) for n, x in enumerate(leaves)}

    # Codecs

    def encode(self, hop: Hop, codec: Codec, sender: int, iteration: int, values: Any) -> Numbers:
        """Return the tensors that are sent of these values."""
        message = self._encoders(hop, codec)(np.int32(sender), np.int32(iteration), values)
        return {f"{CODED}{n}": np.asarray(x) for n, x in enumerate(jax.tree.leaves(message))}

    def decode(self, hop: Hop, codec: Codec, tensors: Numbers, like: Weights) -> Weights:
        """Return what arrives, from the tensors that were sent; `like` has the values' paths, shapes and dtypes."""
        shapes = {path: jax.ShapeDtypeStruct(np.shape(w), np.asarray(w).dtype) for path, w in like.items()}
        places, structure = jax.tree.flatten(jax.eval_shape(lambda u: codec.encode(self.key, u), shapes))
        leaves = [jnp.asarray(tensors[f"{CODED}{n}"]) for n in range(len(places))]
        return self._decoders(hop, codec)(jax.tree.unflatten(structure, leaves), like)

    def _encoders(self, hop: Hop, codec: Codec) -> Callable[..., Any]:
        return self.program(
            f"encode {hop}", lambda: lambda sender, k, values: codec.encode(draw_key(self.key, hop, sender, k), values)
        )

    def _decoders(self, hop: Hop, codec: Codec) -> Callable[..., Any]:
        return self.program(f"decode {hop}", lambda: codec.decode)

    # An edge's optimiser

    def edge_moments(self, model: Numbers) -> Any:
        """Return what it remembers as a global round begins."""
        return None if self.way.edge_server is None else self.way.edge_server.start(model)

    def step_edge(self, before: Numbers, combined: Numbers, mask: Numbers | None, moments: Any) -> tuple[Numbers, Any]:
        """Let it step from the edge's model before an edge round, where there is one."""
        server = self.way.edge_server
        if server is None:
            return combined, moments
        after, moments = self.program("step edge", lambda: server.step)(before, combined, mask, moments)
        return {path: np.asarray(w) for path, w in after.items()}, moments

    # Programs

    @cached_property
    def _programs(self) -> dict[str, Any]:
        return {}

    def program(self, name: str, make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        """Compile a function once."""
        if name not in self._programs:
            self._programs[name] = jax.jit(make())
        return self._programs[name]

    def train(self, start: Weights, link: Link, own: Samples, memory: Memory, client: int, first: int) -> Update:
        """Make a client's local round; what a codec would do to its update is left to the link."""
        way, steps = replace(self.way, uplink=None), self.schedule.local_steps

        def program(start: Weights, link: Link, own: Samples, memory: Memory, client: Any, first: Any) -> Update:
            return local_round(self.task, way, start, link, own, memory, self.key, client, first, steps, self.lr)

        made: Update = self.program("train", lambda: program)(
            start, link, own, memory, np.int32(client), np.int32(first)
        )
        return made


def require_carried(made: Experiment) -> None:
    """Refuse what a fleet does not carry yet, in one sentence."""
    algorithm, config = made.job.algorithm, made.config
    way = algorithm.way
    if way.correction is not None and way.correction.follows:
        others = {
            "participation": config.participation < 1,
            "down_codec": way.downlink,
            "cloud_codec": way.backhaul,
            "cloud_rule": config.declared["cloud_rule"] != "mean",
            "server": config.declared["server"] != "none",
        }
        if changed := [key for key, value in others.items() if value]:
            raise ConfigError(
                f"correction={way.correction.name} lets clients and edges of a fleet learn from an average, which they "
                f"take from the model that they are sent next; {changed[0]} sends them another one, leave it out"
            )
    if way.downlink is not None and not algorithm.whole_models:
        raise ConfigError("down_codec is not carried by a fleet to clients that own parts of a tensor; leave it out")
    gossip = algorithm.gossip
    if gossip is not None and gossip.mixing.min() < 0 and made.model.variances:
        raise ConfigError("the edges' running variances are averaged over all of them at once here, which neighbours "
                          "of a fleet cannot; take another graph, or bn=groupnorm")  # fmt: skip


def on_host(weights: Any) -> Numbers:
    return {path: np.asarray(jax.device_get(w)) for path, w in weights.items()}


def padded(x: NDArray[Any]) -> NDArray[Any]:
    """Fill an array up to the next power of two with zeros, so that few shapes differ from client to client."""
    room = (1 << max(0, len(x) - 1).bit_length()) - len(x)
    return np.concatenate([x, np.zeros((room, *x.shape[1:]), x.dtype)])
