"""Clients that remember make an algorithm's state larger: by a row for each client, and for each cell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from fedge.core.contract import Algorithm, ModelDescription, State
from fedge.core.tree import Weights
from fedge.core.update import Kept, Memory


def remembering(algorithm: Algorithm, model: ModelDescription) -> Algorithm:
    """Return the algorithm with its clients' memory in its state, where what happens to updates asks for one."""
    way, topology = algorithm.way, algorithm.topology
    if not way.keeps:
        return algorithm

    def start(w: Weights) -> Kept:
        own = {path: w[path] for path in sorted(model.trainable)}
        return Kept(algorithm.start(w), Memory.empty(way, own, topology.clients, topology.cells))

    def edges(kept: Kept) -> Weights:
        assert algorithm.edges is not None
        return algorithm.edges(kept.state)

    return replace(
        algorithm,
        start=start,
        deal=lambda kept, now: algorithm.deal(kept.state, now),
        merge=lambda kept, stacks, now: Kept(algorithm.merge(kept.state, stacks, now), kept.memory),
        evaluated=lambda kept, cell_weight: algorithm.evaluated(kept.state, cell_weight),
        edges=None if algorithm.edges is None else edges,
        operator=None,
    )


def memory_bytes(state: State) -> int:
    """Count the bytes of what clients and cells remember, from the shapes of a state."""
    kept: list[Any] = [state.memory] if isinstance(state, Kept) else []
    return sum(x.size * jnp.dtype(x.dtype).itemsize for x in jax.tree.leaves(kept))
