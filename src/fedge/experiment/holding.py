"""Find out what clients and edges must hold in a run, and refuse a network whose clients or edges cannot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedge.core.client import Task
from fedge.core.contract import Algorithm
from fedge.core.sampling import participants
from fedge.core.split import Split
from fedge.cost.ledger import Ledger
from fedge.cost.memory import Holding, Setting, client_holding, edge_holding
from fedge.cost.network import Client, Edge, Network
from fedge.data import Dataset, Partition
from fedge.errors import ConfigError, brief
from fedge.experiment.tasks import shape_of_samples
from fedge.models import Model


class Holdings(NamedTuple):
    """These are what a client and an edge of each stack of cells hold, with the cells that it is true of."""

    cells: tuple[int, ...]
    client: Holding
    edge: Holding


def holdings(
    algorithm: Algorithm, task: Task, model: Model, ledger: Ledger, dataset: Dataset, partition: Partition
) -> list[Holdings]:  # fmt: skip
    """Return what is held at most in each stack of cells; those of the same shapes share an entry."""
    on_client, split = algorithm.client_stages, None
    if on_client is not None and on_client != model.stages:
        at_edge = tuple(stage for stage in model.stages if stage not in on_client)
        split = Split(task.forward, on_client, at_edge, model.stage_of, task.objective)  # type: ignore[arg-type]
    active = max(participants(len(own), ledger.participation) for own in algorithm.topology.roster)
    at = Setting(
        algorithm, task, split, shape_of_samples(dataset.x_train), shape_of_samples(dataset.y_train),
        int(np.max(partition.size)), active,
    )  # fmt: skip
    return [Holdings(stack.ids, client_holding(at, stack), edge_holding(at, stack)) for stack in ledger.stacks]


def require_memory_of(network: Network, found: Sequence[Holdings], what: str, *, has_edges: bool) -> None:
    """Refuse a network in which somebody has less memory than a run needs there; `what` names the run."""
    for cells, client, edge in found:
        own = [one for one in network.clients if one.cell in cells or not has_edges]
        _require("client", own, client, network, what)
        if has_edges:
            _require("edge", [network.edges[d] for d in cells], edge, network, what)


def _require(kind: str, some: Sequence[Client | Edge], holds: Holding, network: Network, what: str) -> None:
    least = min(some, key=lambda one: one.memory)
    if least.memory < holds.total:
        small = sum(one.memory < holds.total for one in some)
        more = f" ({small} {kind}s are too small)" if small > 1 else ""
        raise ConfigError(
            f"{kind} '{brief(least.name)}' of network {network.name} has {least.memory / 1e6:.4g} MB of memory, and "
            f"{what} needs {holds.total / 1e6:.4g} MB there{more}; take a smaller model or batch, another algorithm, "
            f"or leave such {kind}s out"
        )


def limits_memory(network: Network) -> bool:
    """Say whether the memory of some client or edge is known."""
    return any(math.isfinite(memory) for memory in network.memories)
