"""This file says which client belongs to which cell. The names of all ways stand in ASSIGNMENTS, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Rng = np.random.Generator


def consecutive(clients: int, cells: int) -> NDArray[np.int32]:
    """Return the cell of each client where cells of nearly equal size follow each other."""
    sizes = clients // cells + (np.arange(cells) < clients % cells)
    return np.repeat(np.arange(cells, dtype=np.int32), sizes)


class Roster(NamedTuple):
    clients: int
    cells: int
    commonest: Callable[[], Indices]  # label of each client's samples; it costs clients × classes
    rng: Rng


def random_cells(r: Roster) -> NDArray[np.int32]:
    """Draw the clients of each cell."""
    return _give_cells(r.rng.permutation(r.clients), consecutive(r.clients, r.cells))


def edge_iid(r: Roster) -> NDArray[np.int32]:
    """Sort clients by their commonest label and deal them to the cells like cards, so that cells look alike.

    Each row is dealt in a random order, or cells would take labels by turns.
    """
    rows = -(-r.clients // r.cells)
    order = _by_commonest(r)
    return _give_cells(order, np.concatenate([r.rng.permutation(r.cells) for _ in range(rows)])[: r.clients])


def edge_niid(r: Roster) -> NDArray[np.int32]:
    """Sort clients by their commonest label and cut them into blocks, so that a cell holds few labels."""
    return _give_cells(_by_commonest(r), consecutive(r.clients, r.cells))


def _by_commonest(r: Roster) -> Indices:
    order = r.rng.permutation(r.clients)
    return order[np.argsort(r.commonest()[order], kind="stable")]


def _give_cells(order: Indices, cells: NDArray[Any]) -> NDArray[np.int32]:
    """Give the clients, in this order, these cells; return the cell of each."""
    cell = np.empty(len(order), np.int32)
    cell[order] = cells
    return cell


ASSIGNMENTS: dict[str, Callable[[Roster], NDArray[np.int32]]] = {
    "random": random_cells,
    "edge_iid": edge_iid,
    "edge_niid": edge_niid,
}
BY_LABEL = ("edge_iid", "edge_niid")  # these ask for each client's commonest class
