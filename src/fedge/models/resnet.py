"""ResNet-18 for 32×32 images: 3×3 stem, stages of 64/128/256/512 channels; 11,173,962 parameters (SD-FEEL's model).

`bn` chooses the normalisation: BatchNorm with one of the statistics modes of `Model`, or GroupNorm (32 groups), which
has no statistics at all and does not see that a client's batch holds one class only.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar, cast

from flax import nnx
from jax import Array

from fedge.errors import ConfigError
from fedge.models.base import Model, Statistics, from_nnx
from fedge.models.layers import conv, linear

WIDTHS = (64, 128, 256, 512)


def norm(channels: int, kind: str, rngs: nnx.Rngs, units: str | None = None) -> nnx.Module:
    metadata = {"units": (units,)}
    if kind == "groupnorm":
        return nnx.GroupNorm(channels, 32, rngs=rngs, scale_metadata=metadata, bias_metadata=metadata)
    return nnx.BatchNorm(
        channels, momentum=0.9, epsilon=1e-5, rngs=rngs, scale_metadata=metadata, bias_metadata=metadata
    )


class Block(nnx.Module):
    """Two 3×3 convolutions around a residual. Only the inner channels are units: the stream is everyone's."""

    def __init__(self, inputs: int, outputs: int, strides: int, kind: str, unit: str, rngs: nnx.Rngs) -> None:
        self.conv1 = conv(inputs, outputs, 3, rngs, strides=strides, padding=1, bias=False, units_out=unit)
        self.norm1 = norm(outputs, kind, rngs, unit)
        self.conv2 = conv(outputs, outputs, 3, rngs, padding=1, bias=False, units_in=unit)
        self.norm2 = norm(outputs, kind, rngs)
        if strides != 1 or inputs != outputs:
            self.shortcut = conv(inputs, outputs, 1, rngs, strides=strides, bias=False)
            self.shortcut_norm = norm(outputs, kind, rngs)
        self.projects = strides != 1 or inputs != outputs

    def __call__(self, x: Array) -> Array:
        inner = nnx.relu(self.norm1(self.conv1(x)))
        out: Array = self.norm2(self.conv2(inner))
        return nnx.relu(out + (self.shortcut_norm(self.shortcut(x)) if self.projects else x))


class ResNet18(nnx.Module):
    stages: ClassVar = {
        "stem": ("stem", "stem_norm"),
        **{f"layer{i}": (f"layer{i}",) for i in (1, 2, 3, 4)},
        "head": ("fc",),
    }

    def __init__(
        self, channels: int, classes: int, kind: str, rngs: nnx.Rngs, widths: tuple[int, ...] = WIDTHS
    ) -> None:
        self.stem = conv(channels, widths[0], 3, rngs, padding=1, bias=False)
        self.stem_norm = norm(widths[0], kind, rngs)
        before = widths[0]
        for number, width in enumerate(widths, start=1):
            name = f"layer{number}"
            first = Block(before, width, 1 if number == 1 else 2, kind, f"{name}.0", rngs)
            setattr(self, name, nnx.List([first, Block(width, width, 1, kind, f"{name}.1", rngs)]))
            before = width
        self.fc = linear(before, classes, rngs)

    def stage(self, name: str, x: Array) -> Array:
        if name == "stem":
            return nnx.relu(self.stem_norm(self.stem(x)))
        if name == "head":
            return self.fc(x.mean((1, 2)))
        for block in getattr(self, name):
            x = block(x)
        return x

    def __call__(self, x: Array) -> Array:
        for name in self.stages:
            x = self.stage(name, x)
        return x


def resnet18(*, input_shape: tuple[int, ...], classes: int, bn: str = "avg_all") -> Model:
    if len(input_shape) != 3:
        raise ConfigError(f"resnet18 needs images (rows, columns, channels), not inputs of shape {input_shape}")
    return from_nnx(
        partial(ResNet18, input_shape[-1], classes, bn),
        input_shape=input_shape,
        classes=classes,
        name="resnet18",
        statistics="avg_all" if bn == "groupnorm" else cast(Statistics, bn),
    )
