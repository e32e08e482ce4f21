"""Refuse keys that are each possible and cannot be together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedge.algorithms import algorithm
from fedge.core.objective import TASKS
from fedge.core.topology import GRAPHS
from fedge.data import DATASETS
from fedge.data.partition import check_counts
from fedge.errors import ConfigError, brief, unknown
from fedge.experiment.tasks import refuse_labels

if TYPE_CHECKING:
    from fedge.experiment.config import Config

CUSTOM = "custom"  # the data set, model or optimiser was passed in from Python
COUNTABLE = 2**31 - 1  # iterations of a run
GRAPH_CELLS = 2_000  # the eigenvalues of a graph's mixing matrix then take about 5 s


def check(c: Config) -> None:
    """Refuse combinations that cannot be."""
    if c.data not in (*DATASETS, CUSTOM):
        raise ConfigError(unknown("data", c.data, DATASETS))
    check_sizes(c)
    graph = c.declared.get("graph")
    if graph is not None:
        check_graph(c, graph)
    wrong = [
        ("class_split", c.partition != "one_class", "partition=one_class"),
        ("concentration", c.partition != "dirichlet", "partition=dirichlet"),
        ("client_samples", c.partition != "drawn", "partition=drawn"),
        ("bn", c.model not in ("resnet8", "resnet18"), "model=resnet8 or model=resnet18"),
        ("dropout", c.model not in ("mlp", "cnn"), "model=mlp or model=cnn"),
        ("momentum", c.optimizer != "sgd", "optimizer=sgd"),
    ]
    for key, misplaced, needs in wrong:
        if misplaced and getattr(c, key) != type(c).model_fields[key].default:
            raise ConfigError(f"{key}={brief(getattr(c, key))} is only for {needs}; leave {key} out")
    if c.partition == "cell_iid" and c.assign != "random":
        raise ConfigError(f"partition=cell_iid decides the cells itself; leave assign={c.assign} out")
    if c.task in TASKS:
        refuse_labels(c, c.task)
    if c.engine == "reference" and (c.devices > 1 or c.chunk > 1):
        raise ConfigError("devices and chunk are only for engine=vectorised; leave them out")


def check_sizes(c: Config) -> None:
    """Refuse numbers that are each possible and too many together."""
    if c.data in DATASETS:
        check_counts(c.partition, c.class_split, c.clients, DATASETS[c.data].samples[0], 10, c.client_samples)
    if c.cells > c.clients:
        raise ConfigError(f"cells={c.cells} is more than clients={c.clients}; each cell needs at least one client")
    if (c.rounds or 1) > most_rounds(c):
        product = f"rounds={c.rounds or 1} × edge_rounds={c.edge_rounds} × local_steps={c.local_steps}"
        raise ConfigError(f"{product} is more than the {COUNTABLE} iterations that can be counted; lower one of them")


def most_rounds(c: Config) -> int:
    """Tell of how many global rounds the iterations can be counted."""
    return COUNTABLE // (c.local_steps * c.edge_rounds)


def check_graph(c: Config, graph: str) -> None:
    """Refuse a graph that cannot be made, without taking long to find that out."""
    if c.cells > GRAPH_CELLS:
        raise ConfigError(f"cells={c.cells} is too many for {c.algorithm}, which needs a matrix over all their pairs; "
                          f"allowed: up to {GRAPH_CELLS}")  # fmt: skip
    density, field = c.declared.get("density", 1.0), algorithm(c.algorithm).keys.get("density")
    if graph != "erdos_renyi" and field is not None and density != field.default:
        raise ConfigError(f"density={density} is only for graph=erdos_renyi; leave density out")
    lone = c.cells * (1 - density) ** (c.cells - 1)
    if graph == "erdos_renyi" and lone > 30:  # then one draw in 10¹³ is connected
        raise ConfigError(f"density={density} leaves {lone:.0f} of {c.cells} cells without a link on average; "
                          "raise density")  # fmt: skip
    if graph not in GRAPHS or graph == "erdos_renyi":  # the others are what they should be
        from fedge.core.graph import edge_graph

        edge_graph(graph, c.cells, density, c.seed)
