"""Weights by name: do they fit a model, and how are they called and laid out in PyTorch?

    fedge (Flax)                 PyTorch
    a/kernel     I × O           a.weight         O × I             linear
    a/kernel     H × W × I × O   a.weight         O × I × H × W     convolution, of any number of axes and groups
    a/bias                       a.bias
    a/scale                      a.weight                           normalisation
    a/mean, var                  a.running_mean, a.running_var      BatchNorm's statistics, where they travel
    a/embedding  N × F           a.weight         N × F             nn.Embedding

Images are rows × columns × channels here and channels × rows × columns there, so a linear layer that takes a flattened
image has its inputs in another order: `flattened` says for such layers the rows, columns and channels.

    here   input (h·W + w)·C + c        there   input (c·H + h)·W + w
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedge.errors import ConfigError, DataError, brief, suggestion
from fedge.models.base import Model

Arrays = dict[str, NDArray[Any]]
THEIRS = {"kernel": "weight", "bias": "bias", "scale": "weight", "mean": "running_mean", "var": "running_var",
          "embedding": "weight"}  # fmt: skip
COUNTED = "num_batches_tracked"  # of PyTorch's BatchNorm: nothing is computed from it


def require_fit(what: str, weights: Mapping[str, ArrayLike], model: Model, dtype: Any) -> Arrays:
    """Return these weights as arrays of `dtype`, if they are all that the model has and nothing else."""
    arrays = {str(path): np.asarray(w) for path, w in weights.items()}
    shapes = {path: model.template[path].shape for path in sorted(model.travelling)}
    _require_names(what, arrays, list(shapes), model.name)
    for path, shape in shapes.items():
        found = arrays[path]
        if found.shape != shape:
            turned = "; PyTorch's layout is turned by fedge.weights_from_torch" if found.T.shape == shape else ""
            raise DataError(f"{what} has '{path}' of shape {found.shape}, and that of {model.name} is {shape}{turned}")
        if not jnp.issubdtype(found.dtype, jnp.floating) or jnp.promote_types(found.dtype, dtype) != dtype:
            raise DataError(
                f"{what} has '{path}' in {found.dtype}, which {np.dtype(dtype)} does not hold exactly; convert it, or "
                "give dtype=float64"
            )
        arrays[path] = found.astype(dtype)
        if not np.isfinite(arrays[path]).all():
            raise DataError(f"{what} has numbers in '{path}' that are not finite; start from other weights")
    return arrays


def weights_from_torch(
    weights: Mapping[str, ArrayLike], model: Model, *, names: Mapping[str, str] | None = None,
    flattened: Mapping[str, tuple[int, int, int]] | None = None,
) -> Arrays:  # fmt: skip
    """Return PyTorch's weights (a state_dict, or what its safetensors file holds) by this model's names and layouts.

    `names` maps layers to PyTorch's where they are called otherwise, {"fc1": "classifier.0"}; `flattened` maps each
    linear layer that takes a flattened image to that image's (rows, columns, channels).
    """
    arrays = {str(name): np.asarray(w) for name, w in weights.items() if not str(name).endswith(COUNTED)}
    theirs, images = _their_names(model, names), _images(model, flattened)
    _require_names("PyTorch's state", arrays, list(theirs.values()), model.name)
    found = {}
    for path, name in theirs.items():
        shape = model.template[path].shape
        needed = _to_torch(path, np.empty(shape, np.bool_), images).shape
        if arrays[name].shape != needed:
            raise DataError(
                f"PyTorch's '{name}' has shape {arrays[name].shape}, and '{path}' of {model.name} needs {needed}"
            )
        found[path] = _from_torch(path, arrays[name], images)
    return found


def weights_to_torch(
    weights: Mapping[str, ArrayLike], model: Model, *, names: Mapping[str, str] | None = None,
    flattened: Mapping[str, tuple[int, int, int]] | None = None,
) -> Arrays:  # fmt: skip
    """Return this model's weights by PyTorch's names and layouts, the other way round from `weights_from_torch`."""
    arrays = {str(path): np.asarray(w) for path, w in weights.items()}
    theirs, images = _their_names(model, names), _images(model, flattened)
    _require_names("what was given", arrays, list(theirs), model.name)
    return {name: _to_torch(path, arrays[path], images) for path, name in theirs.items()}


def _to_torch(path: str, w: NDArray[Any], images: Mapping[str, tuple[int, int, int]]) -> NDArray[Any]:
    layer, _, leaf = path.rpartition("/")
    if leaf != "kernel":
        return w
    if layer in images:
        w = w.reshape(*images[layer], -1).transpose(2, 0, 1, 3).reshape(w.shape)
    return np.ascontiguousarray(w.transpose(w.ndim - 1, w.ndim - 2, *range(w.ndim - 2)))


def _from_torch(path: str, w: NDArray[Any], images: Mapping[str, tuple[int, int, int]]) -> NDArray[Any]:
    layer, _, leaf = path.rpartition("/")
    if leaf != "kernel":
        return w
    w = w.transpose(*range(2, w.ndim), 1, 0)
    if layer in images:
        rows, columns, channels = images[layer]
        w = w.reshape(channels, rows, columns, -1).transpose(1, 2, 0, 3).reshape(w.shape)
    return np.ascontiguousarray(w)


def _their_names(model: Model, names: Mapping[str, str] | None) -> dict[str, str]:
    """Map each path of a model to its name in PyTorch."""
    names, found = dict(names or {}), {}
    layers = {path.rpartition("/")[0] for path in model.travelling}
    for layer in names:
        if layer not in layers:
            raise ConfigError(f"names has '{brief(layer)}', which is no layer of {model.name}; its layers: "
                              f"{', '.join(sorted(layers))}{suggestion(layer, layers)}")  # fmt: skip
    for path in sorted(model.travelling):
        layer, _, leaf = path.rpartition("/")
        if leaf not in THEIRS:
            raise ConfigError(f"'{path}' of {model.name} has no layout in PyTorch that fedge knows; it knows linear "
                              "layers, convolutions, normalisation and embeddings")  # fmt: skip
        found[path] = ".".join(part for part in (names.get(layer, layer.replace("/", ".")), THEIRS[leaf]) if part)
    return found


def _images(model: Model, flattened: Mapping[str, tuple[int, int, int]] | None) -> dict[str, tuple[int, int, int]]:
    """Check which linear layers take a flattened image; where one may, this must be said, as nothing else tells."""
    ranks = {p.rpartition("/")[0]: len(v.shape) for p, v in model.template.items() if p.rpartition("/")[2] == "kernel"}
    linear = sorted(layer for layer, rank in ranks.items() if rank == 2)
    if flattened is None and linear and max(ranks.values()) > 3:
        raise ConfigError(
            f"{model.name} has convolutions and linear layers, and PyTorch flattens images in another order; say which "
            f"of {', '.join(linear)} takes a flattened one, flattened={{'{linear[0]}': (rows, columns, channels)}}, or "
            "that none does, flattened={}"
        )
    for layer, sizes in (flattened or {}).items():
        inputs = model.template[f"{layer}/kernel"].shape[0] if layer in linear else None
        if inputs is None or len(sizes) != 3 or math.prod(sizes) != inputs:
            what = f"takes {inputs} numbers" if inputs else f"is no linear layer of {model.name}"
            raise ConfigError(f"flattened has '{brief(layer)}' with {brief(sizes)}, and that {what}; give its (rows, "
                              "columns, channels)")  # fmt: skip
    return dict(flattened or {})


def _require_names(what: str, arrays: Arrays, needed: list[str], model: str) -> None:
    """Refuse what lacks a weight or has one too many, and name the nearest."""
    unused = sorted(arrays.keys() - set(needed))
    if missing := [name for name in needed if name not in arrays]:
        held = f"it holds {', '.join(unused[:5])}{', …' if len(unused) > 5 else ''}"
        else_said = f"; {held if unused else 'give weights of such a model'}"
        raise DataError(
            f"{what} has no '{missing[0]}', which {model} needs{suggestion(missing[0], unused) or else_said}"
        )
    if unused:
        raise DataError(f"{what} has '{brief(unused[0])}', which is no weight of {model}; leave it out")
