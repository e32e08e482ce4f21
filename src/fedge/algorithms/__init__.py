"""Each paper has one file. Algorithms import neither each other nor an engine."""

from __future__ import annotations

from typing import Any, NamedTuple

from fedge.algorithms.fedavg import fedavg
from fedge.algorithms.hierfavg import hfedavg, hierfavg
from fedge.algorithms.hiersfl import hiersfl, hiersfl_v2
from fedge.algorithms.hist import hist
from fedge.algorithms.sdfeel import sdfeel
from fedge.core.contract import Factory


class Entry(NamedTuple):
    factory: Factory
    keys: dict[str, Any] = {}  # configuration keys that only some algorithms read, with this one's defaults  # noqa: RUF012
    form_of: str | None = None  # another algorithm of which this is a form: left out of a comparison of all


ALGORITHMS: dict[str, Entry] = {
    "fedavg": Entry(fedavg),
    "hierfavg": Entry(hierfavg),
    "hfedavg": Entry(hfedavg, form_of="hierfavg"),
    "hist": Entry(hist, {"out_bias": "owner", "rescale": "none"}),
    "hiersfl": Entry(hiersfl, {"cut": None, "server_copies": "shared", "messages": False}),
    "hiersfl_v2": Entry(hiersfl_v2, {"cut": None, "messages": False}, form_of="hiersfl"),
    "sdfeel": Entry(
        sdfeel,
        {"gossip": 1, "graph": "bipartite", "density": 0.4, "mixing": "optimal"},
    ),
}
