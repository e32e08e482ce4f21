"""Targets that are no classes: real numbers to predict (regression), and labels for each position (tokens)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedge.errors import DataError

LARGEST = 3e38  # what a float32 can hold


def numbers(what: str, y: NDArray[Any]) -> NDArray[Any]:
    """Return targets of regression in a type that JAX has; integers are numbers too."""
    if np.issubdtype(y.dtype, np.integer) or y.dtype == np.float64:
        return y.astype(np.float64, copy=False)
    if y.dtype.name not in ("float16", "bfloat16", "float32"):
        raise DataError(f"{what} targets must be finite real numbers where classes=0, not {y.dtype}; give floats or "
                        "integers, or leave classes out")  # fmt: skip
    return y.astype(np.float32)


def check_numbers(what: str, y: NDArray[Any], samples: int) -> None:
    if not np.issubdtype(y.dtype, np.floating):
        raise DataError(f"{what} targets where classes=0 must be floats, not {y.dtype}; make the set with Dataset.of")
    _check_count(what, y, samples)
    good = np.isfinite(y) & (np.abs(y, where=np.isfinite(y), out=np.zeros_like(y)) <= LARGEST)
    if not good.all():
        first, count = int(np.argmin(good.reshape(samples, -1).all(1))), int(np.count_nonzero(~good))
        raise DataError(
            f"{what} targets must be finite real numbers where classes=0, and {count:,} are NaN, infinite or beyond a "
            f"float32, the first in sample {first}; mend them or leave their samples out"
        )


def check_tokens(what: str, y: NDArray[Any], samples: int, classes: int) -> None:
    if not np.issubdtype(y.dtype, np.integer):
        raise DataError(f"{what} labels of tokens must be integers, not {y.dtype}; give token ids, and −1 where none "
                        "is to be predicted")  # fmt: skip
    _check_count(what, y, samples)
    if y.max() >= classes:
        raise DataError(f"{what} labels go up to {y.max()}, which does not fit classes={classes}")
    if y.max() < 0:
        raise DataError(f"{what} labels are all below 0, so that nothing is to be predicted; give token ids from 0")


def _check_count(what: str, y: NDArray[Any], samples: int) -> None:
    if len(y) != samples or y.size == 0:
        raise DataError(f"{what} needs targets for each sample, not {samples} samples and targets {y.shape}")
