"""HIST trains this 784-300-10 multilayer perceptron, with ReLU: 238,510 parameters."""

from __future__ import annotations

import math
from typing import ClassVar

from flax import nnx
from jax import Array

from fedge.models.base import Model, from_nnx
from fedge.models.layers import linear


class MLP(nnx.Module):
    stages: ClassVar = {"hidden": ("fc1",), "output": ("fc2",)}

    def __init__(self, inputs: int, hidden: int, classes: int, dropout: float, rngs: nnx.Rngs) -> None:
        self.fc1 = linear(inputs, hidden, rngs, units_out="hidden")
        self.fc2 = linear(hidden, classes, rngs, units_in="hidden")
        self.drop = nnx.Dropout(dropout, rngs=rngs) if dropout else None

    def stage(self, name: str, x: Array) -> Array:
        if name == "hidden":
            h = nnx.relu(self.fc1(x.reshape(x.shape[0], -1)))
            return h if self.drop is None else self.drop(h)
        return self.fc2(x)

    def __call__(self, x: Array) -> Array:
        for name in self.stages:
            x = self.stage(name, x)
        return x


def mlp(*, input_shape: tuple[int, ...], classes: int, hidden: int = 300, dropout: float = 0.0) -> Model:
    inputs = math.prod(input_shape)
    return from_nnx(
        lambda rngs: MLP(inputs, hidden, classes, dropout, rngs), input_shape=input_shape, classes=classes, name="mlp"
    )
