"""What may be done to an update on its way has one file for each idea, whatever the algorithm.

An update is a function (algorithm, model, *, its own keys) → algorithm with something done to its updates: like an
algorithm, it declares its keys by its keyword-only parameters. They are put on in the order of `UPDATES`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedge.updates.codecs import encoded
from fedge.updates.corrections import corrected
from fedge.updates.edge_server import stepped_at_edges
from fedge.updates.proximal import proximal
from fedge.updates.rules import combined
from fedge.updates.server import stepped

UPDATES: tuple[Callable[..., Any], ...] = (proximal, corrected, encoded, combined, stepped_at_edges, stepped)
