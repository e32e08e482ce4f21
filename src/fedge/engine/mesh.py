"""The devices of this process as one axis, over which clients (or cells, or images) are spread."""

from __future__ import annotations

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from fedge.errors import ConfigError

AXIS = "clients"
EVERYWHERE, SPREAD = PartitionSpec(), PartitionSpec(AXIS)


def mesh_of(devices: int) -> Mesh:
    """The first `devices` there are; 0 means all."""
    have = jax.devices()
    if devices > len(have):
        raise ConfigError(f"devices={devices} was asked for, but JAX has {len(have)} ({have[0].platform})")
    return Mesh(np.array(have[: devices or len(have)]), (AXIS,))
