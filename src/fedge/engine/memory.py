"""A compiled program is held against the memory that there is, before it runs."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from fedge.core.memory import free_memory
from fedge.engine.mesh import on_cpu
from fedge.errors import ConfigError


class DoesNotFit(ConfigError):  # noqa: N818
    """A program needs more memory than there is; `why` says so in half a sentence."""

    def __init__(self, why: str) -> None:
        super().__init__(f"a round of this run {why}; take a smaller model, fewer cells or a smaller batch")
        self.why = why


def require_room(program: Any, mesh: Mesh) -> None:
    need, have = need_and_have(program, mesh)
    if need > have:
        raise DoesNotFit(f"needs {need:.1f} GB of {have:.1f}")


def need_and_have(program: Any, mesh: Mesh) -> tuple[float, float]:
    """Return the gigabytes that a compiled program needs and those there are.

    On a GPU both are of a whole card. On a CPU they are of the host, what is left of it: the program's inputs lie there
    already, so what counts is its results and what it holds in between, once for each core.
    """
    sizes, device = program.memory_analysis(), mesh.local_devices[0]
    held = 0 if sizes is None else sizes.temp_size_in_bytes
    if on_cpu(mesh):
        results = 0 if sizes is None else sizes.output_size_in_bytes
        need, have = (held + results) * len(mesh.local_devices) / 1e9, free_memory() / 1e9
    else:
        given = 0 if sizes is None else sizes.argument_size_in_bytes
        need, have = (held + given) / 1e9, (device.memory_stats() or {}).get("bytes_limit", np.inf) / 1e9
    if jax.process_count() > 1:  # all must come to the same conclusion
        both = multihost_utils.process_allgather(np.array([need, have], np.float32))
        need, have = both[:, 0].max(), both[:, 1].min()
    return float(need), float(have)
