"""JAX, set up once per process: host devices, compilation cache."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import jax
import pooch


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def prepare(devices: int = 0) -> None:
    """One host device per core (or as many as asked for), and compiled programs kept between processes.

    Where JAX has already started, its devices stay as they are. A user's own JAX settings win.
    """
    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        with contextlib.suppress(RuntimeError):  # JAX has started: the engine says so if it has too few
            jax.config.update("jax_num_cpu_devices", devices or cores())
    if jax.config.values["jax_compilation_cache_dir"] is None and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        base = Path(os.environ.get("FEDGE_CACHE") or pooch.os_cache("fedge"))
        jax.config.update("jax_compilation_cache_dir", str(base / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
