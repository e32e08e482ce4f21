"""A run's setting is what it is made of before it trains, in numbers few enough to draw on a page.

`setting.json` holds it: data, model, who belongs to which cell, who holds which labels, the graph between edges, what
each cell is handed of the model, where it is cut, and the network that simulated seconds are reckoned for. It takes no
more room for a million clients than for a few hundred.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedge.cost.clock import Clock
from fedge.cost.waits import Waits
from fedge.experiment.build import Experiment

MARKS = 400  # clients, cells or columns that are told one by one
SORTED = 10_000  # clients that a column may show by their commonest class
KINDS = 48  # rows of a heat map; more classes than that share them
LINKS = 2_000  # between edges, told one by one
BLOCK = 2**20  # samples that are counted at once
Integers = NDArray[Any]


def setting_of(made: Experiment) -> dict[str, Any]:
    """Describe a run that is about to train."""
    algorithm, dataset, objective = made.job.algorithm, made.dataset, made.job.task.objective
    no_gossip = "cloud" if algorithm.has_edges else "direct"
    return {
        "data": {
            "name": dataset.name,
            "task": objective.task,
            "train": len(dataset.x_train),
            "test": len(dataset.x_test),
            "shape": list(dataset.shape),
            "classes": dataset.classes,
        },
        "model": {"name": made.model.name, "parameters": made.model.parameters},
        "main": objective.main,
        "falls": [n for n in objective.names if not objective.metric(n).higher_is_better],
        "exchange": "gossip" if algorithm.gossip else no_gossip,
        "topology": _topology(made),
        "labels": _labels(made),
        "graph": _graph(made),
        "held": _held(made),
        "cut": _cut(made),
        "network": _network(made),
    }


def few(values: Iterable[Any]) -> list[Any] | None:
    """Return numbers one by one where they are few; None where a page has no room for them."""
    numbers = np.asarray(values)
    return numbers.tolist() if len(numbers) <= MARKS else None


def spread(values: Any) -> dict[str, float]:
    """Return the smallest, the middle and the largest of some numbers."""
    numbers = np.asarray(values)
    return {"least": numbers.min().item(), "middle": float(np.median(numbers)), "most": numbers.max().item()}


def _topology(made: Experiment) -> dict[str, Any]:
    cell, samples = made.topology.cell, np.asarray(made.partition.size)
    clients = np.bincount(cell)
    owned = np.bincount(cell, samples).astype(np.int64)
    return {
        "clients": len(cell),
        "cells": len(clients),
        "client_samples": spread(samples),
        "cell_clients": spread(clients),
        "cell_samples": spread(owned),
        "each_client": None if few(cell) is None else {"cell": few(cell), "samples": few(samples)},
        "each_cell": None if few(clients) is None else {"clients": few(clients), "samples": few(owned)},
    }


# Who holds which labels


class Columns(NamedTuple):
    """These columns make a heat map over clients: where each begins in `order`, which cell it shows, and what it is."""

    order: Integers  # clients, cell by cell
    start: Integers
    cell: Integers
    says: str


def columns_of(cell: Integers, commonest: Integers | None) -> Columns:
    """Make a column for each client; for several of a cell or for several cells, where there are too many."""
    clients, per_cell = len(cell), np.bincount(cell)
    cells = len(per_cell)
    if clients <= MARKS:
        order = np.argsort(cell, kind="stable")
        return Columns(order, np.arange(clients), cell[order], "clients, cell by cell")
    order = np.argsort(cell, kind="stable") if commonest is None else np.lexsort((commonest, cell))
    own = cell[order]
    if cells > MARKS:
        column = own * MARKS // cells
        says = f"cells; a column is the mean over the clients of {-(-cells // MARKS):,} cells or fewer"
    else:
        each = np.minimum(per_cell, MARKS // cells)
        begin = np.cumsum(per_cell) - per_cell
        rank = np.arange(clients) - begin[own]
        column = (np.cumsum(each) - each)[own] + rank * each[own] // per_cell[own]
        most = int((-(-per_cell // each)).max())
        by = "" if commonest is None else ", by their commonest class"
        says = f"clients, cell by cell{by}; a column is the mean of {most:,} or fewer"
    start = np.flatnonzero(np.diff(column, prepend=-1))
    return Columns(order, start, own[start], says)


def _labels(made: Experiment) -> dict[str, Any] | None:
    """Say for each column of clients what share of their samples is of each class."""
    label, kinds, names = made.dataset.strata
    if kinds < 2:
        return None
    partition, cell = made.partition, made.topology.cell
    commonest = partition.label_counts(label, kinds).argmax(1) if MARKS < len(cell) <= SORTED else None
    order, start, cells, says = columns_of(cell, commonest)
    column = np.empty(len(cell), np.int64)
    column[order] = np.repeat(np.arange(len(start)), np.diff(start, append=len(order)))
    group = -(-kinds // KINDS)
    counts = _counts(
        column, len(start), np.asarray(partition.size), label[partition.order] // group, -(-kinds // group)
    )
    shown = [str(name) for name in names[::group]] if names else [str(k) for k in range(0, kinds, group)]
    samples = counts.sum(1)
    return {
        "kinds": shown,
        "group": group,  # classes in a row
        "says": says,
        "cell": cells.tolist(),
        "clients": np.diff(start, append=len(order)).tolist(),
        "samples": samples.tolist(),
        "share": np.round(counts / np.maximum(samples, 1)[:, None], 4).tolist(),
    }


def _counts(column: Integers, columns: int, size: Integers, label: Integers, kinds: int) -> Integers:
    """Count the samples of each column and kind, so many samples at a time that memory does not grow with them."""
    ends = np.cumsum(size)
    found = np.zeros(columns * kinds, np.int64)
    first = 0
    while first < len(size):
        begin = int(ends[first] - size[first])
        last = max(first + 1, int(np.searchsorted(ends, begin + BLOCK, "right")))
        owner = np.repeat(column[first:last], size[first:last])
        found += np.bincount(owner * kinds + label[begin : int(ends[last - 1])], minlength=len(found))
        first = last
    return found.reshape(columns, kinds)


# What travels, and between whom


def _network(made: Experiment) -> dict[str, Any]:
    """Say how fast devices and links are: the same numbers for all, or the spread of those that were measured."""
    clock, network = made.clock, made.network
    if isinstance(clock, Clock):
        rates = clock.rates
        return {
            "step_seconds": rates.step_seconds,
            "uplink_bps": rates.uplink_bps,
            "edge_bps": rates.edge_bps,
            "cloud_bps": rates.cloud_bps,
            "equal": rates.equal,
        }
    assert network is not None
    return {
        "name": network.name,
        "step_seconds": spread(clock.step.client),
        "uplink_bps": spread([client.rate.up for client in network.clients]),
        "clients": few([client.name for client in network.clients]),
        "edges": few([edge.name for edge in network.edges]),
        "links": len(network.links or {}) // 2,
        "equal": False,
    }


def _graph(made: Experiment) -> dict[str, Any] | None:
    gossip = made.job.algorithm.gossip
    if gossip is None:
        return None
    links = gossip.graph.number_of_edges()
    return {
        "edges": gossip.graph.number_of_nodes(),
        "links": links,
        "each_link": sorted(sorted(link) for link in gossip.graph.edges) if links <= LINKS else None,
        "neighbours": spread([degree for _, degree in gossip.graph.degree]),
        "exchanges": gossip.steps,
        "zeta": gossip.zeta,
        "smallest_mixing_entry": float(gossip.mixing.min()),
    }


def _held(made: Experiment) -> dict[str, Any]:
    """Say how many bytes of the model each cell's edge and clients hold in the first round."""
    ledger = made.clock.ledger
    at_edge, at_client = ledger.cell_bytes(0), ledger.cell_bytes(0, client=True)
    whole = [made.model.template[path] for path in made.model.travelling]
    width = np.dtype(made.config.dtype).itemsize
    return {
        "model": width * sum(math.prod(w.shape) for w in whole),
        "changes": not ledger.alike,  # from round to round
        "edge": spread(at_edge),
        "client": spread(at_client),
        "each_edge": few(at_edge),
        "each_client": few(at_client),
    }


def _cut(made: Experiment) -> dict[str, Any] | None:
    """Say where a model is split, and what crosses the cut at each iteration."""
    algorithm, cut, model = made.job.algorithm, made.clock.ledger.cut, made.model
    on_client = algorithm.client_stages
    if on_client is None:
        return None
    stages = []
    for stage in model.stages:
        own = [w for path, w in model.template.items() if path in model.trainable and model.stage_of(path) == stage]
        numbers = sum(math.prod(w.shape) for w in own)
        stages.append({"name": stage, "parameters": numbers, "on_client": stage in on_client})
    return {
        "stages": stages,
        "client_parameters": sum(s["parameters"] for s in stages if s["on_client"]),
        "edge_parameters": sum(s["parameters"] for s in stages if not s["on_client"]),
        "client_work": 1.0 if cut is None else cut.client_work,
        "activation_bytes": 0 if cut is None else cut.up,
        "gradient_bytes": 0 if cut is None else cut.down,
        "label_bytes": 0 if cut is None else cut.labels,
        "sharing": algorithm.sharing.value,
    }


def waiting_of(waits: Waits | None) -> dict[str, Any] | None:
    """Say how long clients and edges waited, one by one where they are few."""
    if waits is None:
        return None
    clients = {"busy": waits.client_busy, "waits": waits.client_waits, "last": waits.client_last}
    edges = {"waits": waits.edge_waits, "last": waits.edge_last}
    return {
        "client": {name: spread(values) for name, values in clients.items()},
        "edge": {name: spread(values) for name, values in edges.items()},
        "each_client": {n: few(v) for n, v in clients.items()} if len(waits.client_busy) <= MARKS else None,
        "each_edge": {n: few(v) for n, v in edges.items()} if len(waits.edge_waits) <= MARKS else None,
    }
