"""What a run is made with is written down: versions, hardware, date."""

from __future__ import annotations

import platform
from datetime import datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from fedge._version import __version__
from fedge.runner.identity import code_digest

VERSIONS = ("jax", "jaxlib", "flax", "optax", "numpy")


def environment(seed: int) -> dict[str, Any]:
    devices = jax.devices()
    return {
        "seed": seed,
        "code": code_digest(),
        **_machine(),
        "devices": [d.device_kind for d in devices],
        "backend": devices[0].platform,
    }


@cache
def _machine() -> dict[str, Any]:
    """Say what does not change while a process lives; reading it takes as long as a short round."""
    return {
        "versions": {"fedge": __version__, "python": platform.python_version()}
        | {name: metadata.version(name) for name in VERSIONS},
        "platform": platform.platform(),
        "processor": _processor(),
    }


def now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
