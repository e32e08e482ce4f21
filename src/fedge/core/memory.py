"""This knows how much memory is left, and refuses what cannot fit before it is allocated."""

from __future__ import annotations

import math
from pathlib import Path

import jax

from fedge.errors import ConfigError


def free_memory(root: Path = Path("/")) -> float:
    """Return the bytes that this process may still allocate: of the host, and of every container it runs in.

    They are infinite where the system does not say (not Linux). What files hold in memory counts as free: it can be
    dropped.
    """
    return min([_left_on_host(root), *_left_in_groups(root)])


def state_memory() -> float:
    """Return the bytes that a state may take: all that an accelerator has, or what is free on this host."""
    device = jax.local_devices()[0]
    return free_memory() if device.platform == "cpu" else (device.memory_stats() or {}).get("bytes_limit", math.inf)


def require_memory(what: str, needed: float, advice: str, free: float | None = None) -> None:
    """Refuse what needs more bytes than are free, in one sentence: what it is, the figures, and what to do instead."""
    free = free_memory() if free is None else free
    if needed > free:
        raise ConfigError(f"{what} needs {needed / 1e9:.3g} GB of memory and {free / 1e9:.3g} GB are free; {advice}")


def _left_on_host(root: Path) -> float:
    try:
        lines = dict(line.split(":") for line in (root / "proc/meminfo").read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return math.inf


def _left_in_groups(root: Path) -> list[float]:
    """Return each limit of a control group (version 2 or 1) around this process, less what is used and cannot go."""
    try:
        lines = [line.split(":", 2) for line in (root / "proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return []
    mount, left = root / "sys/fs/cgroup", list[float]()
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if not controllers:
            top, names = mount, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            top, names = mount / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        for name in path.split("/"):  # "/a/b": first the top, which in a container is its own group, then a, then b
            top = top / name
            left.append(_left_in_group(top, *names))
    return left


def _left_in_group(folder: Path, limit: str, used: str, droppable: str) -> float:
    try:
        statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        held = int((folder / used).read_text()) - int(statistics.get(droppable, 0))
        return int((folder / limit).read_text()) - held
    except (OSError, ValueError):  # no such file, or "max"
        return math.inf
