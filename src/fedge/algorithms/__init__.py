"""One paper, one file. Algorithms import neither each other nor an engine."""

from __future__ import annotations

from typing import Any, NamedTuple

from fedge.algorithms.fedavg import fedavg
from fedge.algorithms.hierfavg import hierfavg
from fedge.algorithms.sdfeel import sdfeel
from fedge.core.contract import Factory


class Entry(NamedTuple):
    factory: Factory
    keys: dict[str, Any] = {}  # configuration keys that only some algorithms read, with this one's defaults  # noqa: RUF012


ALGORITHMS: dict[str, Entry] = {
    "fedavg": Entry(fedavg),
    "hierfavg": Entry(hierfavg),
    "sdfeel": Entry(
        sdfeel,
        {"gossip": 1, "graph": "bipartite", "density": 0.4, "mixing": "optimal"},
    ),
}
