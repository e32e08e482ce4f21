"""A topology says who belongs to which cell and how much each client counts, and gives the averaging operators.

Replicas are columns: W is (parameters × clients) and an operator T acts from the right, W ← W·T.

    m    weight[i], Σ m = 1              m̃    cell_weight[d] = Σ_{i in d} m_i
    H'   cell_average   (C × D)          H''  broadcast (D × C)
    H1 = H'·H''         average inside each cell, handed back to its clients
    A  = m·1ᵀ           average in the cloud
    H2 = H'·P^α·H''     cell average, then α gossip steps between edges with mixing matrix P
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedge.errors import ConfigError

Matrix = NDArray[np.float64]
GRAPHS = ("ring", "complete", "bipartite", "star", "path", "grid", "erdos_renyi")  # between edges; made in `core.graph`


@dataclass(frozen=True, eq=False)
class Topology:
    """`cell[i]` is the cell of client i, cells numbered 0..D-1; `weight[i]` is its share m_i of the objective."""

    cell: NDArray[np.int32]
    weight: Matrix

    @classmethod
    def of(cls, cell: ArrayLike, weight: ArrayLike) -> Topology:
        """Check and normalise: each cell needs a client and each client a positive weight."""
        cells, weights = np.asarray(cell, np.int32), np.asarray(weight, np.float64)
        if cells.ndim != 1 or cells.shape != weights.shape or len(cells) == 0:
            raise ConfigError("a topology needs one cell and one weight for each client, and at least one client")
        if not np.array_equal(np.unique(cells), np.arange(cells.max() + 1)):
            raise ConfigError("cells must be numbered 0 to D-1 and each must hold at least one client")
        if not np.all(np.isfinite(weights)) or weights.min() <= 0:
            raise ConfigError("client weights must be positive numbers")
        return cls(cells, weights / weights.sum())

    @property
    def clients(self) -> int:
        return len(self.cell)

    @property
    def cells(self) -> int:
        return int(self.cell.max()) + 1

    @cached_property
    def cell_weight(self) -> Matrix:
        return np.bincount(self.cell, self.weight, self.cells).astype(np.float64)

    @cached_property
    def roster(self) -> list[NDArray[np.int32]]:
        """The roster lists the clients of each cell, in ascending order."""
        ends = np.cumsum(np.bincount(self.cell))
        return np.split(np.argsort(self.cell, kind="stable").astype(np.int32), ends[:-1])

    def one_cell(self) -> Topology:
        """Keep the clients and their weights, with no edges between them and the cloud."""
        return Topology(np.zeros_like(self.cell), self.weight)

    def uniform(self) -> Topology:
        """Keep the cells, with m_i = 1/C."""
        return Topology(self.cell, np.full(self.clients, 1 / self.clients))

    def uniform_cells(self) -> Topology:
        """Keep the cells, with m_i = 1/(D·n_d): every cell counts the same (HIST's objective)."""
        return Topology(self.cell, 1 / (self.cells * np.bincount(self.cell)[self.cell]))

    # The operators, as matrices: for proofs and small cases; engines never build them.

    @property
    def cell_average(self) -> Matrix:
        share = np.zeros((self.clients, self.cells))
        share[np.arange(self.clients), self.cell] = self.weight / self.cell_weight[self.cell]
        return share

    @property
    def broadcast(self) -> Matrix:
        return (self.cell[None, :] == np.arange(self.cells)[:, None]).astype(np.float64)

    @property
    def identity(self) -> Matrix:
        return np.eye(self.clients)

    @property
    def edge_operator(self) -> Matrix:
        """This is H1."""
        return self.cell_average @ self.broadcast

    @property
    def cloud_operator(self) -> Matrix:
        """This is A."""
        return np.outer(self.weight, np.ones(self.clients))

    def gossip_operator(self, mixing: Matrix, steps: int) -> Matrix:
        """This is H2."""
        return self.cell_average @ np.linalg.matrix_power(mixing, steps) @ self.broadcast
