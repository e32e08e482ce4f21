"""Models are Flax NNX modules: parameters carry unit names, and the forward pass is a chain of named stages."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from fedge.models.base import Model, from_nnx
from fedge.models.cnn import cnn
from fedge.models.linen import from_linen
from fedge.models.mlp import mlp
from fedge.models.resnet import resnet8, resnet18

MODELS: dict[str, Callable[..., Model]] = {"mlp": mlp, "cnn": cnn, "resnet8": resnet8, "resnet18": resnet18}

__all__ = ["MODELS", "Model", "from_linen", "from_nnx", "make"]


@cache
def make(name: str, input_shape: tuple[int, ...], classes: int, **options: Any) -> Model:
    """The same arguments give the same object, so that what it compiled is there again."""
    return MODELS[name](input_shape=input_shape, classes=classes, **options)
