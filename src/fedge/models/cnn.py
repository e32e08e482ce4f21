"""HierFAVG's and SD-FEEL's MNIST experiments train this CNN: 21,840 parameters, 10 and 20 channels of 5×5, fc 50."""

from __future__ import annotations

from typing import ClassVar

from flax import nnx
from jax import Array

from fedge.errors import ConfigError
from fedge.models.base import Model, from_nnx
from fedge.models.layers import conv, conv_max_pool, linear


class CNN(nnx.Module):
    """This does conv → pool → ReLU twice, then fc → ReLU → fc. Every second layer is dealt in units, so that each
    weight tensor has exactly one partitioned axis."""

    stages: ClassVar = {"pool1": ("conv1",), "pool2": ("conv2",), "fc1": ("fc1",), "fc2": ("fc2",)}

    def __init__(self, channels: int, flat: int, classes: int, dropout: float, rngs: nnx.Rngs) -> None:
        self.conv1 = conv(channels, 10, 5, rngs, units_out="conv1")
        self.conv2 = conv(10, 20, 5, rngs, units_in="conv1")
        self.fc1 = linear(flat, 50, rngs, units_out="fc1")
        self.fc2 = linear(50, classes, rngs, units_in="fc1")
        self.drop_channels = nnx.Dropout(dropout, broadcast_dims=(1, 2), rngs=rngs) if dropout else None
        self.drop = nnx.Dropout(dropout, rngs=rngs) if dropout else None

    def stage(self, name: str, x: Array) -> Array:
        match name:
            case "pool1":
                return nnx.relu(_pooled(x, self.conv1))
            case "pool2":
                x = _pooled(x, self.conv2)
                x = x if self.drop_channels is None else self.drop_channels(x)  # whole channels: as well after pooling
                return nnx.relu(x)
            case "fc1":
                x = nnx.relu(self.fc1(x.reshape(x.shape[0], -1)))
                return x if self.drop is None else self.drop(x)
            case _:
                return self.fc2(x)

    def __call__(self, x: Array) -> Array:
        for name in self.stages:
            x = self.stage(name, x)
        return x


def _pooled(x: Array, layer: nnx.Conv) -> Array:
    assert layer.bias is not None
    return conv_max_pool(x, layer.kernel[...], layer.bias[...])


def cnn(*, input_shape: tuple[int, ...], classes: int, dropout: float = 0.0) -> Model:
    if len(input_shape) != 3:
        raise ConfigError(f"the cnn needs images (rows, columns, channels), not inputs of shape {input_shape}")
    rows, columns, channels = input_shape
    flat = ((rows - 4) // 2 - 4) // 2 * (((columns - 4) // 2 - 4) // 2) * 20
    if min(rows, columns) < 16:
        raise ConfigError(f"the cnn needs images of at least 16 × 16, not {rows} × {columns}")
    return from_nnx(
        lambda rngs: CNN(channels, flat, classes, dropout, rngs), input_shape=input_shape, classes=classes, name="cnn"
    )
