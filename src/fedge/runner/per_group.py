"""Metrics of cells and clients: how the tested model does on the samples that each of them trains with.

fedge has one test set for all, so what is found for a cell or a client is found on its own *training* samples: it says
who is served well and who is not, and not how the model does on samples that nobody has seen.

    client i     the metric over its samples S_i
    cell d       the metric over all samples of its clients
    mean         (1/C) Σ_i of the clients' values, each client counting the same
    worst tenth  the mean over the ⌈C/10⌉ clients that are served worst
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedge.core.objective import Objective
from fedge.data import Partition

IN_EVERY_ROW = 1_000  # numbers for each client; more of them only in a run's last row
MOST = 10_000  # and more than these in none
Values = NDArray[np.float64]


def plural(name: str) -> str:
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"


def group_columns(objective: Objective, asked: list[str], partition: Partition, values: NDArray[Any]) -> dict[str, Any]:
    """Return the columns of a row that are asked for, from what the metric is a mean of: samples, or samples × K."""
    name, columns = objective.of_groups, dict[str, Any]()
    sums = _sums(np.repeat(np.arange(len(partition.size)), partition.size), values[partition.order])
    if "cells" in asked:
        means = _divide(_sums(partition.cell, sums), np.bincount(partition.cell, partition.size))
        columns[f"cell_{plural(name)}"] = objective.value(name, means)
    if "clients" in asked:
        each = objective.value(name, _divide(sums, partition.size))
        columns[f"client_{name}"] = mean_of(each)
        columns[f"worst_tenth_{name}"] = worst_tenth(each, objective.metric(name).higher_is_better)
        if len(each) <= MOST:
            columns[f"client_{plural(name)}"] = each
    return columns


def mean_of(each: Values) -> float:
    """Return the mean over those that have a value: a client may have nothing that the metric counts."""
    known = each[~np.isnan(each)]
    return float(known.mean()) if len(known) else float("nan")


def worst_tenth(each: Values, higher_is_better: bool) -> float:
    ranked = np.sort(each[~np.isnan(each)])
    count = -(-len(ranked) // 10)
    return mean_of(ranked[:count] if higher_is_better else ranked[len(ranked) - count :])


def without_long(row: dict[str, Any]) -> dict[str, Any]:
    """Leave out of a row what only the last one holds."""
    return {key: value for key, value in row.items() if not (key.startswith("client_") and _is_long(value))}


def _is_long(value: Any) -> bool:
    return isinstance(value, list) and len(value) > IN_EVERY_ROW


def _sums(owner: NDArray[Any], values: NDArray[Any]) -> Values:
    """Sum values over the samples of each owner."""
    columns = values.reshape(len(values), -1).T
    found = np.stack([np.bincount(owner, column.astype(np.float64)) for column in columns], -1).astype(np.float64)
    return found.reshape(-1, *values.shape[1:])


def _divide(sums: Values, size: NDArray[Any]) -> Values:
    return sums / size.reshape(-1, *[1] * (sums.ndim - 1))
