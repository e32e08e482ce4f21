"""JAX, set up once per process: host devices, compilation cache, and other processes to work with."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any

import jax
import pooch

from fedge.errors import ConfigError, RunError

HOSTS = (
    "auto (SLURM, Open MPI, Kubernetes) or I/N@HOST:PORT, this being process I of N (from 0) and HOST:PORT process 0's"
)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processes() -> int:
    return jax.process_count() if jax.distributed.is_initialized() else 1


def leads() -> bool:
    """Whether this process writes and prints: the only one, or the first of several."""
    return processes() == 1 or jax.process_index() == 0


def prepare(devices: int = 0, hosts: str | None = None) -> None:
    """One host device per core (or as many as asked for), and compiled programs kept between processes.

    `hosts` makes this process one of several that run one experiment together; `devices` are then those of all. Where
    JAX has already started, its devices stay as they are. A user's own JAX settings win.
    """
    given = _given(hosts) if hosts is not None else {}
    count = given.get("num_processes", 1)
    if devices % count:
        raise ConfigError(f"devices={devices} cannot be shared out evenly among {count} processes; leave it out")
    if not jax.distributed.is_initialized():
        if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
            with contextlib.suppress(RuntimeError):  # JAX has started: the engine says so if it has too few
                jax.config.update("jax_num_cpu_devices", (hosts != "auto" and devices // count) or cores())
        if hosts is not None:
            _join(hosts, given)
    if jax.config.values["jax_compilation_cache_dir"] is None and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        base = Path(os.environ.get("FEDGE_CACHE") or pooch.os_cache("fedge"))
        jax.config.update("jax_compilation_cache_dir", str(base / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def _given(hosts: str) -> dict[str, Any]:
    if hosts == "auto":
        return {}
    found = re.fullmatch(r"(\d+)/(\d+)@([^@\s]+:\d+)", hosts)
    if found is None or not int(found[1]) < int(found[2]):
        raise ConfigError(f"hosts={hosts} is not allowed; give {HOSTS}")
    return {"process_id": int(found[1]), "num_processes": int(found[2]), "coordinator_address": found[3]}


def _join(hosts: str, given: dict[str, Any]) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(**given, initialization_timeout=120)
    except (RuntimeError, ValueError) as problem:
        reason = (str(problem).splitlines() or [""])[0]
        raise RunError(f"the processes of hosts={hosts} did not find each other ({reason[:150]})") from None
