"""Several processes of one run are named by a word: which of them this is, and where to meet."""

from __future__ import annotations

import re
from typing import Any

from fedge.errors import ConfigError, brief

HOSTS = (
    "auto (SLURM, Open MPI, Kubernetes) or I/N@HOST:PORT, this being process I of N (from 0) and HOST:PORT process 0's"
)


def partners(hosts: str) -> dict[str, Any]:
    """Read who takes part in a run by several processes, in the words of `jax.distributed.initialize`."""
    if hosts == "auto":
        return {}
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})@([^@\s]+):([0-9]{1,5})", hosts)
    if found is None or not int(found[1]) < int(found[2]) or not 0 < int(found[4]) < 2**16:
        raise ConfigError(f"hosts={brief(hosts)} is not allowed; give {HOSTS}")
    return {
        "process_id": int(found[1]),
        "num_processes": int(found[2]),
        "coordinator_address": f"{found[3]}:{int(found[4])}",
    }
