"""One paper, one file. Algorithms import neither each other nor an engine."""

from __future__ import annotations

from typing import NamedTuple

from fedge.algorithms.fedavg import fedavg
from fedge.algorithms.hierfavg import hierfavg
from fedge.core.contract import Factory


class Entry(NamedTuple):
    factory: Factory
    title: str
    keys: frozenset[str] = frozenset()  # configuration keys that only this algorithm reads


ALGORITHMS: dict[str, Entry] = {
    "fedavg": Entry(fedavg, "FedAvg: clients average in the cloud"),
    "hierfavg": Entry(hierfavg, "HierFAVG: clients average at their edge, edges in the cloud"),
}
