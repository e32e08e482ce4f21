"""Data, a partition and cells of one's own are read here, and clients and cells counted in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike, NDArray

from fedge.core.objective import TASKS
from fedge.cost.network import Network
from fedge.data import ASSIGNMENTS, DATASETS, PARTITIONS, Dataset, load
from fedge.data.own_data import Reading, is_own, load_own
from fedge.data.own_numbers import check_cells, check_owners, read_numbers
from fedge.errors import ConfigError, brief
from fedge.experiment.checks import AS_NETWORK, CUSTOM, NATURAL
from fedge.experiment.config import Config
from fedge.experiment.tasks import find_objective, outputs_of

Shape = tuple[int, ...]


def load_data(config: Config) -> Dataset:
    """Return the data set that a configuration names."""
    if not is_own(config.data):
        return load(config.data)
    task = config.task if config.task in TASKS else None
    how = Reading(config.seed, config.test_fraction, config.target_column, config.client_column, task)
    return load_own(config.data, how)


def shape_of_data(config: Config) -> tuple[Shape, int, int]:
    """Return the shape of a sample, the outputs of a model for it, and the bytes of each number as it is stored."""
    if config.data in DATASETS:
        return DATASETS[config.data].shape, 10, 1
    dataset = load_data(config)
    outputs = outputs_of(find_objective(config, dataset, None), config, dataset.classes)
    return dataset.shape, outputs, dataset.x_train.dtype.itemsize


def settle(
    config: Config, dataset: Dataset, owner: ArrayLike | None, cell: ArrayLike | None, network: Network | None = None
) -> tuple[Config, NDArray[Any] | None, NDArray[Any] | None]:
    """Return a configuration that says how many clients and cells there are, and who owns what where that is given."""
    owners = _owners(config, dataset, owner)
    if network is not None:
        config = _as_network(config, network, owners)
    cells = _cells(config, cell) if network is None else network.cell
    counts = {} if cells is None else {"cells": int(cells.max()) + 1}
    if owners is not None:
        counts["clients"] = int(owners.max()) + 1
    elif cells is not None and "clients" not in config.model_fields_set:
        counts["clients"] = len(cells)
    for key, count in counts.items():
        if key in config.model_fields_set and getattr(config, key) != count:
            given = f"partition={config.partition}" if key == "clients" else f"assign={config.assign}"
            raise ConfigError(f"{key}={getattr(config, key)} does not fit {brief(given)}, which has {count}; "
                              f"leave {key} out")  # fmt: skip
    if counts:
        config = Config.of(config.model_dump(exclude_unset=True) | counts)
    if cells is not None:
        check_cells(f"assign={brief(config.assign)}", cells, config.clients)
    return config, owners, cells


def _as_network(config: Config, network: Network, owners: NDArray[Any] | None) -> Config:
    """Return a configuration with the numbers of clients and cells and the links that a network has."""
    counts = {"clients": len(network.clients), "cells": len(network.edges)}
    for key, count in counts.items():
        if key in config.model_fields_set and getattr(config, key) != count:
            raise ConfigError(f"{key}={getattr(config, key)} does not fit network={brief(config.network)}, which has "
                              f"{count}; leave {key} out")  # fmt: skip
    if owners is not None and int(owners.max()) + 1 != len(network.clients):
        raise ConfigError(
            f"network={brief(config.network)} has {len(network.clients)} clients, and "
            f"partition={brief(config.partition)} has {int(owners.max()) + 1}; let them be as many"
        )
    links = {}
    if config.declared.get("graph") == AS_NETWORK:
        if len(network.edges) > 1 and not network.links:
            raise ConfigError(
                f"network={brief(config.network)} has no links between edges, and {config.algorithm} needs them; add "
                "[[links]]"
            )
        links = {"graph": network.graph or "path"}  # one edge alone has no links
    return Config.of(config.model_dump(exclude_unset=True) | counts | links)


def _owners(config: Config, dataset: Dataset, given: ArrayLike | None) -> NDArray[Any] | None:
    """Return the client of each training sample, where that is not drawn."""
    if config.partition in PARTITIONS:
        return None
    what = f"partition={brief(config.partition)}"
    if config.partition == NATURAL:
        if dataset.client is None:
            raise ConfigError(
                f"partition=natural needs to know who a sample of {dataset.name} comes from; give client_column=COLUMN "
                "of a CSV, an array client in a .npz, Dataset.of(…, client=…), or another partition"
            )
        return dataset.client
    custom = config.partition == CUSTOM
    given = _passed_in("partition", given) if custom else read_numbers("partition", Path(config.partition))
    return check_owners(what, given, len(dataset.y_train))


def _cells(config: Config, given: ArrayLike | None) -> NDArray[Any] | None:
    """Return the cell of each client, where that is not drawn."""
    if config.assign in ASSIGNMENTS:
        return None
    given = _passed_in("assign", given) if config.assign == CUSTOM else read_numbers("assign", Path(config.assign))
    return check_cells(f"assign={brief(config.assign)}", given)


def _passed_in(key: str, given: ArrayLike | None) -> ArrayLike:
    if given is None:
        raise ConfigError(f"{key}=custom means an array passed in from Python; pass it (again)")
    return given
