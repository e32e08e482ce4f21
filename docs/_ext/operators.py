"""The operator T_k of each algorithm, drawn from the algorithms themselves on six clients in three cells.

A column is a client after iteration k, a row a client before it: how dark a square is says how much of the row's model
the column's takes over. `Algorithm.operator` gives the matrices; of HIST, whose operator differs from one coordinate to
the next, the one of a coordinate that the first cell owns is made from the same averages.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from fedge.algorithms import ALGORITHMS
from fedge.core.schedule import Schedule
from fedge.core.topology import Topology

TOPOLOGY = Topology.of([0, 0, 1, 1, 2, 2], np.ones(6))
KNOBS = SimpleNamespace(local_steps=2, edge_rounds=2, seed=0)
MODEL = SimpleNamespace(
    axes={}, template={}, stages=("lower", "upper"), trainable=frozenset({"lower", "upper"}), variances=frozenset(),
    stage_of=lambda path: path,
)  # fmt: skip
SHOWN = {
    "fedavg": ("FedAvg", "lower", {}),
    "hierfavg": ("HierFAVG", "lower", {}),
    "sdfeel": ("SD-FEEL, edges on a path", "lower", {"graph": "path"}),
    "hiersfl": ("HierSFL, client half", "lower", {}),
    "hiersfl ": ("HierSFL, edge half", "upper", {}),
    "hist": ("HIST, a coordinate of cell 0", "lower", {}),
}
CELL, GAP, LEFT, TOP = 15, 26, 178, 34


def matrices(name: str, path: str, own: dict[str, str]) -> list[np.ndarray]:
    """Return T_1 to T_4: two local steps, an average at the edge, two more, and the end of the global round."""
    if name == "hist":  # the clients of other cells do not hold the coordinate until the round is over
        held = np.equal(TOPOLOGY.cell, 0).astype(float)
        schedule = Schedule(KNOBS.local_steps, KNOBS.edge_rounds)
        edge = [TOPOLOGY.edge_operator if schedule.is_edge(k) else TOPOLOGY.identity for k in range(1, 4)]
        return [*(held[:, None] * t * held for t in edge), np.outer(TOPOLOGY.cell_average[:, 0], np.ones(len(held)))]
    made = ALGORITHMS[name].make(KNOBS, TOPOLOGY, MODEL, **own)
    return [made.operator(k, path) for k in range(1, 5)]


def figures() -> str:
    """Draw a row for each algorithm and a column for each of the four iterations of a small global round."""
    side = CELL * TOPOLOGY.clients
    width, height = LEFT + 4 * (side + GAP), TOP + len(SHOWN) * (side + GAP)
    parts = [f'<svg class="drawing" role="img" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">'
             "<title>T_1 to T_4 of each algorithm, six clients in three cells</title>"]  # fmt: skip
    for k in range(4):
        words = ("k = 1", "k = 2: edge", "k = 3", "k = 4: merge")[k]
        parts.append(f'<text x="{LEFT + k * (side + GAP) + side / 2}" y="20" text-anchor="middle">{words}</text>')
    for row, (name, (title, path, own)) in enumerate(SHOWN.items()):
        y = TOP + row * (side + GAP)
        first, _, rest = title.partition(", ")
        parts.append(f'<text class="name" x="0" y="{y + side / 2 - 2}">{first}</text>')
        parts.append(f'<text class="aside" x="0" y="{y + side / 2 + 16}">{rest}</text>')
        for k, matrix in enumerate(matrices(name.strip(), path, own)):
            parts.append(_matrix(matrix, LEFT + k * (side + GAP), y))
    return f'<div class="scroll">{"".join(parts)}</svg></div>'


def _matrix(matrix: np.ndarray, x: float, y: float) -> str:
    squares = [
        f'<rect class="{"negative" if share < 0 else "share"}" x="{x + CELL * j}" y="{y + CELL * i}" width="{CELL}" '
        f'height="{CELL}" fill-opacity="{min(1, abs(share)) ** 0.6:.2f}"><title>{share:.3g}</title></rect>'
        for i, row in enumerate(matrix) for j, share in enumerate(row) if abs(share) > 1e-12
    ]  # fmt: skip
    side = CELL * len(matrix)
    lines = "".join(
        f'<path class="grid" d="M{x + at} {y}v{side}M{x} {y + at}h{side}"/>' for at in range(0, side + 1, 2 * CELL)
    )
    return "".join(squares) + lines
