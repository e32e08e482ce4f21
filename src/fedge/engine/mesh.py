"""A mesh is the devices of this or several processes in a row: clients, cells or images are shared out over it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fedge.core.update import Kept
from fedge.errors import ConfigError

AXIS = "clients"
REPLICATED, BY_DEVICE = PartitionSpec(), PartitionSpec(AXIS)  # whole on every device, or a part on each


def mesh_of(devices: int) -> Mesh:
    """Take the first `devices` there are; 0 means all. Several processes use all of theirs."""
    have = jax.devices()
    if devices > len(have):
        raise ConfigError(f"devices={devices} was asked for, but JAX has {len(have)} ({have[0].platform})")
    if devices and jax.process_count() > 1 and devices < len(have):
        raise ConfigError(f"devices={devices} would leave some of the {len(have)} devices of several processes idle")
    return Mesh(np.array(have[: devices or len(have)]), (AXIS,))


def place(values: Any, mesh: Mesh, spec: PartitionSpec) -> Any:
    """Put a pytree on the mesh; where there are several processes, each has the same values and hands over its part."""
    sharding = NamedSharding(mesh, spec)
    if jax.process_count() == 1:
        return jax.device_put(values, sharding)

    def put(x: Any) -> Array:
        if isinstance(x, Array) and x.sharding == sharding:
            return x
        if isinstance(x, Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(put(jax.random.key_data(x)), impl=jax.random.key_impl(x))
        whole = np.asarray(x)
        return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])

    return jax.tree.map(put, values)


def state_specs(state: Any, mesh: Mesh) -> Any:
    """Say how a state lies on the mesh: whole on every device, but clients' rows are spread where they can be."""
    specs = jax.tree.map(lambda _: REPLICATED, state)
    if not isinstance(state, Kept) or jax.process_count() > 1:
        return specs

    def spread(x: Any) -> PartitionSpec:
        return BY_DEVICE if x.shape[0] % mesh.size == 0 else REPLICATED

    rows = state.memory
    return specs._replace(memory=specs.memory._replace(shift=jax.tree.map(spread, rows.shift),
                                                       lost=jax.tree.map(spread, rows.lost)))  # fmt: skip


def place_state(state: Any, mesh: Mesh) -> Any:
    """Put a state on the mesh as `state_specs` says."""
    if not isinstance(state, Kept):
        return place(state, mesh, REPLICATED)
    return jax.tree.map(lambda x, spec: place(x, mesh, spec), state, state_specs(state, mesh))


def state_shardings(state: Any, mesh: Mesh) -> Any:
    return jax.tree.map(lambda spec: NamedSharding(mesh, spec), state_specs(state, mesh))


def on_cpu(mesh: Mesh) -> bool:
    return bool(mesh.devices.flat[0].platform == "cpu")


def here(values: Any) -> Any:
    """Give a pytree that lies whole on every device as arrays of this process alone."""
    return jax.tree.map(lambda x: x if x.is_fully_addressable else x.addressable_data(0), values)
