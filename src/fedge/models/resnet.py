"""These are residual networks for 32×32 images, with a 3×3 stem.

ResNet-18 has four stages of two blocks, 64/128/256/512 channels: 11,173,962 parameters (SD-FEEL's model). ResNet-8 has
three stages of one block, 16/32/64 channels: 78,042 parameters, a 44th of the multiply-adds (He et al., CVPR 2016, its
form for CIFAR-10 with n = 1, here with projections), for machines on which ResNet-18 is too slow.

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


def stages(layers: int) -> dict[str, tuple[str, ...]]:
    """Name the places at which such a network can be cut."""
    return {
        "stem": ("stem", "stem_norm"),
        **{f"layer{i}": (f"layer{i}",) for i in range(1, layers + 1)},
        "head": ("fc",),
    }


def norm(channels: int, kind: str, rngs: nnx.Rngs, units: str | None = None) -> nnx.Module:
    metadata = {"units": (units,)}
    if kind == "groupnorm":
        return nnx.GroupNorm(channels, min(32, channels), rngs=rngs, scale_metadata=metadata, bias_metadata=metadata)
    return nnx.BatchNorm(
        channels, momentum=0.9, epsilon=1e-5, rngs=rngs, scale_metadata=metadata, bias_metadata=metadata
    )


class Block(nnx.Module):
    """A block is two 3×3 convolutions around a residual. Its inner channels alone are units: the stream is shared."""

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


class ResNet(nnx.Module):
    """Stages consist of residual blocks; each stage but the first halves the image in its first block."""

    widths: ClassVar[tuple[int, ...]]
    blocks: ClassVar[int]  # of a stage
    stages: ClassVar[dict[str, tuple[str, ...]]]

    def __init__(self, channels: int, classes: int, kind: str, rngs: nnx.Rngs) -> None:
        before = self.widths[0]
        self.stem = conv(channels, before, 3, rngs, padding=1, bias=False)
        self.stem_norm = norm(before, kind, rngs)
        for number, width in enumerate(self.widths, start=1):
            name, strides = f"layer{number}", 1 if number == 1 else 2
            made = []
            for place in range(self.blocks):
                made.append(Block(before, width, 1 if place else strides, kind, f"{name}.{place}", rngs))
                before = width
            setattr(self, name, nnx.List(made))
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


class ResNet18(ResNet):
    widths, blocks, stages = (64, 128, 256, 512), 2, stages(4)


class ResNet8(ResNet):
    widths, blocks, stages = (16, 32, 64), 1, stages(3)


def resnet18(*, input_shape: tuple[int, ...], classes: int, bn: str = "avg_all") -> Model:
    return _model(ResNet18, "resnet18", input_shape, classes, bn)


def resnet8(*, input_shape: tuple[int, ...], classes: int, bn: str = "avg_all") -> Model:
    return _model(ResNet8, "resnet8", input_shape, classes, bn)


def _model(network: type[ResNet], name: str, input_shape: tuple[int, ...], classes: int, bn: str) -> Model:
    if len(input_shape) != 3:
        raise ConfigError(f"{name} needs images (rows, columns, channels), not inputs of shape {input_shape}")
    return from_nnx(
        partial(network, input_shape[-1], classes, bn),
        input_shape=input_shape,
        classes=classes,
        name=name,
        statistics="avg_all" if bn == "groupnorm" else cast(Statistics, bn),
    )
