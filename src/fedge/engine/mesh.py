"""The devices, of this process or of several, as one axis over which clients (or cells, or images) are spread."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fedge.errors import ConfigError

AXIS = "clients"
EVERYWHERE, SPREAD = PartitionSpec(), PartitionSpec(AXIS)


def mesh_of(devices: int) -> Mesh:
    """The first `devices` there are; 0 means all. Several processes use all of theirs."""
    have = jax.devices()
    if devices > len(have):
        raise ConfigError(f"devices={devices} was asked for, but JAX has {len(have)} ({have[0].platform})")
    if devices and jax.process_count() > 1 and devices < len(have):
        raise ConfigError(f"devices={devices} would leave some of the {len(have)} devices of several processes idle")
    return Mesh(np.array(have[: devices or len(have)]), (AXIS,))


def place(values: Any, mesh: Mesh, spec: PartitionSpec) -> Any:
    """A pytree on the mesh; where there are several processes, each has the same values and hands over its part."""
    sharding = NamedSharding(mesh, spec)
    if jax.process_count() == 1:
        return jax.device_put(values, sharding)

    def spread(x: Any) -> Array:
        if isinstance(x, Array) and x.sharding == sharding:
            return x
        if isinstance(x, Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(spread(jax.random.key_data(x)), impl=jax.random.key_impl(x))
        whole = np.asarray(x)
        return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])

    return jax.tree.map(spread, values)


def here(values: Any) -> Any:
    """A pytree that lies whole on every device, as arrays of this process alone."""
    return jax.tree.map(lambda x: x if x.is_fully_addressable else x.addressable_data(0), values)
