"""Weights are flat dictionaries, path → array: what travels, what is saved and what is averaged look the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

Weights = dict[str, Array]


def weighted_sum(share: Array, stacked: Weights) -> Weights:
    """Return Σ_d share[d]·w_d over the leading axis. Averages are never taken in reduced matrix precision."""
    return {
        path: jnp.tensordot(share.astype(w.dtype), w, 1, precision=jax.lax.Precision.HIGHEST)
        for path, w in stacked.items()
    }


def add(some: Weights, others: Weights) -> Weights:
    """Return w + v path by path; `others` may have paths that `some` has not, which are left out."""
    return {path: w + others[path] for path, w in some.items()}


def subtract(some: Weights, others: Weights) -> Weights:
    """Return w − v path by path, over the paths of `some`."""
    return {path: w - others[path] for path, w in some.items()}


def scale(factor: Any, weights: Weights) -> Weights:
    return {path: factor * w for path, w in weights.items()}


def repeat(weights: Weights, count: int) -> Weights:
    """Make `count` copies along a new leading axis."""
    return {path: jnp.broadcast_to(w, (count, *w.shape)) for path, w in weights.items()}


def split(weights: Weights, chosen: Callable[[str], bool]) -> tuple[Weights, Weights]:
    """Return (the chosen paths, the others)."""
    return (
        {path: w for path, w in weights.items() if chosen(path)},
        {path: w for path, w in weights.items() if not chosen(path)},
    )


def cast(weights: Mapping[str, ArrayLike], dtype: jnp.dtype) -> Weights:
    return {path: jnp.asarray(w, dtype) for path, w in weights.items()}
