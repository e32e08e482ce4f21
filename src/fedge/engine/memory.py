"""Whether a compiled program fits into memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh


def need_and_have(program: Any, mesh: Mesh, shared: int = 0) -> tuple[float, float]:
    """Gigabytes that a compiled program takes and may take: on a GPU of each card, on a CPU of the whole host, whose
    cores may have some bytes of their inputs in common."""
    sizes, device = program.memory_analysis(), mesh.local_devices[0]
    need = 0 if sizes is None else (sizes.temp_size_in_bytes + sizes.argument_size_in_bytes) / 1e9
    if device.platform == "cpu":
        count = len(mesh.local_devices)
        need, have = need * count - shared * (count - 1) / 1e9, _free()
    else:
        have = (device.memory_stats() or {}).get("bytes_limit", np.inf) / 1e9
    if jax.process_count() > 1:  # all must come to the same conclusion
        both = multihost_utils.process_allgather(np.array([need, have], np.float32))
        need, have = both[:, 0].max(), both[:, 1].min()
    return float(need), float(have)


def _free() -> float:
    """Gigabytes of the host that are free, within the limit of a container."""
    free = np.inf
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024 / 1e9
        return min(free, int(Path("/sys/fs/cgroup/memory.max").read_text()) / 1e9)
    except (OSError, KeyError, ValueError):  # no such file, or "max"
        return free
