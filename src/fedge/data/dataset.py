"""A data set is four arrays and how to scale its images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedge.core.client import Scale
from fedge.errors import DataError


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images as NHWC, bytes kept as bytes (they become numbers on the device), labels 0..classes-1."""

    name: str
    x_train: NDArray[Any]
    y_train: NDArray[np.int32]
    x_test: NDArray[Any]
    y_test: NDArray[np.int32]
    classes: int
    scale: Scale = ((0.0,), (1.0,))  # channel mean and standard deviation, for values in [0, 1]

    @classmethod
    def of(
        cls, x_train: ArrayLike, y_train: ArrayLike, x_test: ArrayLike, y_test: ArrayLike, *,
        name: str = "custom", classes: int | None = None, scale: Scale = ((0.0,), (1.0,)),
    ) -> Dataset:  # fmt: skip
        """Any arrays: checked, labels made int32."""
        xs, ys = [np.asarray(x) for x in (x_train, x_test)], [np.asarray(y) for y in (y_train, y_test)]
        for part, x, y in zip(("train", "test"), xs, ys, strict=True):
            if len(x) == 0 or y.shape != (len(x),):
                raise DataError(f"{name}: {part} needs one label per image, not {len(x)} images and labels {y.shape}")
            if not np.issubdtype(y.dtype, np.integer) or y.min() < 0:
                raise DataError(f"{name}: {part} labels must be integers from 0, not {y.dtype} from {y.min()}")
        if xs[0].shape[1:] != xs[1].shape[1:]:
            raise DataError(f"{name}: train images {xs[0].shape[1:]} and test images {xs[1].shape[1:]} differ in shape")
        found = int(max(y.max() for y in ys)) + 1
        if classes is not None and found > classes:
            raise DataError(f"{name}: labels go up to {found - 1}, which does not fit classes={classes}")
        train, test = (y.astype(np.int32) for y in ys)
        return cls(name, xs[0], train, xs[1], test, classes or found, scale)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.x_train.shape[1:]
