"""Set JAX up once per process: host devices, compilation cache, and other processes to work with."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import Any

import jax
import pooch

from fedge.errors import ConfigError, RunError, brief
from fedge.runner.hosts import partners

MOST = 64  # host devices of a process with fewer cores: 100 take 20 s to start, 300 wait for each other for ever
SETTINGS = {"jax_threefry_partitionable": True, "jax_random_seed_offset": 0, "jax_disable_jit": False,
            "jax_numpy_dtype_promotion": "standard", "jax_numpy_rank_promotion": "allow"}  # fmt: skip
"""With other values of these settings of JAX the same seed draws something else, or programs are not compiled."""
log = logging.getLogger(__name__)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processes() -> int:
    return jax.process_count() if jax.distributed.is_initialized() else 1


def leads() -> bool:
    """Tell whether this process writes and prints: it does if it is the only one, or the first of several."""
    return processes() == 1 or jax.process_index() == 0


def prepare(devices: int = 0, hosts: str | None = None) -> None:
    """Give JAX one host device per core (or as many as asked for), and keep compiled programs between processes.

    `hosts` makes this process one of several that run one experiment together; `devices` are then those of all. Where
    JAX has already started, its devices stay as they are. A user's own JAX settings win.
    """
    for name, needed in SETTINGS.items():
        if (value := getattr(jax.config, name, needed)) != needed:
            raise ConfigError(f"JAX's setting {name}={value} would change what a seed draws, or what can be computed; "
                              f"fedge needs {needed}, which it is unless {name.upper()} says otherwise")  # fmt: skip
    given = partners(hosts) if hosts is not None else {}
    count = given.get("num_processes", 1)
    if devices % count:
        raise ConfigError(f"devices={devices} cannot be shared out evenly among {count} processes; leave it out")
    if not jax.distributed.is_initialized():
        if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
            own = (hosts != "auto" and devices // count) or cores()
            with contextlib.suppress(RuntimeError):  # JAX has started: the engine says so if it has too few
                jax.config.update("jax_num_cpu_devices", min(own, max(MOST, cores())))
        if hosts is not None:
            _join(hosts, given)
    try:
        kind = jax.default_backend()
    except (RuntimeError, AssertionError) as problem:  # a platform that JAX knows and this machine lacks is the second
        reason = brief((str(problem).splitlines() or ["no such platform here"])[0], 150)
        raise ConfigError(f"JAX cannot start ({reason}); JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')}, leave it "
                          "out or name a platform this machine has, such as cpu") from None  # fmt: skip
    if kind == "cpu" and devices // count > max(MOST, cores(), jax.local_device_count()):
        raise ConfigError(f"devices={devices} is too many for a machine with {cores()} cores; "
                          f"allowed: up to {max(MOST, cores())} in a process")  # fmt: skip
    if jax.config.values["jax_compilation_cache_dir"] is None and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        _keep_programs(Path(os.environ.get("FEDGE_CACHE") or pooch.os_cache("fedge")) / "compiled")


def _keep_programs(folder: Path) -> None:
    """Keep compiled programs in a folder, if nobody else can put any there: they are run as they are found."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
        trusted = about.st_uid == os.geteuid() and not about.st_mode & 0o022 and os.access(folder, os.W_OK)
        reason = "others can write there, or you cannot"
    except OSError as problem:
        trusted, reason = False, str(problem.strerror)
    if trusted:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    else:
        log.warning("compiled programs are not kept in %s: %s", folder, reason)


def _join(hosts: str, given: dict[str, Any]) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(**given, initialization_timeout=120)
    except (RuntimeError, ValueError) as problem:
        reason = (str(problem).splitlines() or [""])[0]
        raise RunError(f"the processes of hosts={hosts} did not find each other ({reason[:150]})") from None
