"""A Flax Linen module becomes a model through NNX's bridge.

    model = fedge.from_linen(Net(), input_shape=(28, 28, 1), classes=10)

What Linen writes as an argument of the call, `train`, `training` or `deterministic`, is set by fedge: dropout acts
while clients train and not in tests. Parameters are named `net/Dense_0/kernel`, and so on.

BatchNorm of Linen is refused: fedge estimates running statistics anew where those that travelled do not serve, by
turning a momentum that Linen keeps inside the call. A Linen module names neither units, for HIST, nor stages, for a
cut of HierSFL: those need NNX.
"""

from __future__ import annotations

import inspect
from typing import Any

import jax.numpy as jnp
from flax import linen, nnx
from jax import Array

from fedge.errors import ConfigError
from fedge.models.base import Model, from_nnx

MODES = {"train": True, "training": True, "deterministic": False}  # argument of a call → what it is in training


class Bridged(nnx.Module):
    """This is a Linen module with its variables; `deterministic` is set by whoever calls it."""

    def __init__(self, module: linen.Module, shape: tuple[int, ...], dtype: Any, rngs: nnx.Rngs) -> None:
        self.net = nnx.bridge.ToNNX(module, rngs)
        self.modes = tuple(name for name in MODES if name in inspect.signature(type(module).__call__).parameters)
        self.deterministic = False
        nnx.bridge.lazy_init(self.net, jnp.zeros((1, *shape), dtype), **self.mode)

    @property
    def mode(self) -> dict[str, bool]:
        return {name: MODES[name] != self.deterministic for name in self.modes}

    def __call__(self, x: Array) -> Array:
        mode: dict[str, Any] = self.mode
        made: Array = self.net(x, **mode)
        return made


def from_linen(
    module: linen.Module, *, input_shape: tuple[int, ...], classes: int, name: str = "custom", dtype: Any = jnp.float32
) -> Model:
    """Wrap a Linen module that maps inputs [B, *input_shape] to outputs; `dtype` is that of inputs (int for tokens)."""
    if not isinstance(module, linen.Module):
        raise ConfigError(f"a {type(module).__name__} is no Linen module; give one, made but not yet initialised")
    made = from_nnx(
        lambda rngs: Bridged(module, input_shape, dtype, rngs), input_shape=input_shape, classes=classes, name=name
    )
    if made.has_statistics:
        raise ConfigError(
            f"{type(module).__name__} keeps running statistics (Linen's BatchNorm), which fedge cannot estimate anew; "
            "take GroupNorm or LayerNorm, or write the module in NNX"
        )
    return made
