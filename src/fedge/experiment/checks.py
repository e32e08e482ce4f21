"""Refuse keys that are each possible and cannot be together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedge.algorithms import algorithm
from fedge.core.objective import TASKS
from fedge.core.topology import GRAPHS
from fedge.data import ASSIGNMENTS, DATASETS, PARTITIONS
from fedge.data.own_data import TEST_FRACTION, is_own, is_table
from fedge.data.own_numbers import require_there
from fedge.data.partition import check_counts
from fedge.errors import ConfigError, brief, suggestion
from fedge.experiment.tasks import refuse_labels

if TYPE_CHECKING:
    from fedge.experiment.config import Config

CUSTOM = "custom"  # the data set, model, optimiser, partition or cells were passed in from Python
AS_NETWORK = "network"  # cells and links are those of the network that was measured
NATURAL = "natural"  # the data say who a sample comes from
COUNTABLE = 2**31 - 1  # iterations of a run
GRAPH_CELLS = 2_000  # the eigenvalues of a graph's mixing matrix then take about 5 s


def check(c: Config) -> None:
    """Refuse combinations that cannot be."""
    check_data(c)
    check_sizes(c)
    graph = c.declared.get("graph")
    if graph not in (None, AS_NETWORK) and "cells" not in counted(c):
        check_graph(c, graph)
    wrong = [
        ("class_split", c.partition != "one_class", "partition=one_class"),
        ("concentration", c.partition != "dirichlet", "partition=dirichlet"),
        ("client_samples", c.partition != "drawn", "partition=drawn"),
        ("bn", c.model not in ("resnet8", "resnet18"), "model=resnet8 or model=resnet18"),
        ("dropout", c.model not in ("mlp", "cnn"), "model=mlp or model=cnn"),
        ("momentum", c.optimizer != "sgd", "optimizer=sgd"),
        ("target_metric", c.target is None, "target=NUMBER"),
        ("target_mean", c.target is None, "target=NUMBER"),
    ]
    for key, misplaced, needs in wrong:
        if misplaced and getattr(c, key) != type(c).model_fields[key].default:
            raise ConfigError(f"{key}={brief(getattr(c, key))} is only for {needs}; leave {key} out")
    check_network(c)
    if c.partition == "cell_iid" and c.assign != "random":
        raise ConfigError(f"partition=cell_iid decides the cells itself; leave assign={c.assign} out")
    if c.init not in (None, CUSTOM) and not c.init.lower().endswith(".safetensors"):
        raise ConfigError(f"init={brief(c.init)} is no file of weights; give FILE.safetensors, or leave init out")
    if c.task in TASKS:
        refuse_labels(c, c.task)
    if c.engine == "reference" and (c.devices > 1 or c.chunk > 1):
        raise ConfigError("devices and chunk are only for engine=vectorised; leave them out")


MEASURED = ("cpu_hz", "edge_hz", "uplink_bps", "edge_bps", "cloud_bps", "device_spread", "link_spread")


def check_network(c: Config) -> None:
    """Refuse keys that say what a network as measured says already, and those that mean nothing without one."""
    if c.network is None:
        for key in ("assign", "graph"):
            if (c.declared.get("graph") if key == "graph" else c.assign) == AS_NETWORK:
                raise ConfigError(f"{key}={AS_NETWORK} is only for network=FILE; leave {key} out")
        return
    for key in MEASURED:
        if getattr(c, key) != type(c).model_fields[key].default:
            raise ConfigError(f"network={brief(c.network)} says how fast everything is; leave {key} out")
    if c.assign != AS_NETWORK:
        raise ConfigError(f"network={brief(c.network)} says who is in which cell; leave assign={brief(c.assign)} out")
    if c.partition == "cell_iid":
        raise ConfigError(f"partition=cell_iid decides the cells itself, and so does network={brief(c.network)}; "
                          "take another partition")  # fmt: skip


def check_data(c: Config) -> None:
    """Refuse data that nothing is known of, and keys that do not go with these data."""
    if c.data not in (*DATASETS, CUSTOM) and not is_own(c.data):
        raise ConfigError(
            f"unknown data '{brief(c.data)}'; allowed: {', '.join(DATASETS)}, a file of your own (.npz, .csv), or a "
            f"function (package.module:function){suggestion(c.data, DATASETS)}"
        )
    table = is_table(c.data)
    if table and c.target_column is None:
        require_there(f"data={brief(c.data)}", Path(c.data))
        raise ConfigError(f"data={brief(c.data)} needs the column that is predicted; give target_column=COLUMN")
    for key in ("target_column", "client_column"):
        if not table and getattr(c, key) is not None:
            raise ConfigError(f"{key}={brief(getattr(c, key))} is only for data=FILE.csv; leave {key} out")
    if not is_own(c.data) and c.test_fraction != TEST_FRACTION:
        raise ConfigError(f"test_fraction={c.test_fraction:g} is only for data of your own; leave test_fraction out")
    if c.partition == NATURAL and (c.data in DATASETS or (table and c.client_column is None)):
        raise ConfigError(
            f"partition=natural needs to know who a sample of {brief(c.data)} comes from; give client_column=COLUMN of "
            "a CSV, an array client in a .npz, or another partition"
        )


def counted(c: Config) -> set[str]:
    """Name the keys, clients and cells, whose numbers are not said: they are counted in a partition or in cells of
    one's own, once these are read."""
    own_partition, own_cells = c.partition not in PARTITIONS, c.assign not in ASSIGNMENTS
    keys = {"clients"} if own_partition or own_cells else set[str]()
    return (keys | {"cells"} if own_cells else keys) - c.model_fields_set


def check_sizes(c: Config) -> None:
    """Refuse numbers that are each possible and too many together."""
    if c.data in DATASETS and "clients" not in counted(c):
        check_counts(c.partition, c.class_split, c.clients, DATASETS[c.data].samples[0], 10, c.client_samples)
    if c.cells > c.clients and not counted(c):
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
