"""A data set is four arrays and how to scale its images. One that would train wrongly without a word cannot be made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedge.core.client import Scale
from fedge.core.objective import TASKS
from fedge.data.own_numbers import check_owners
from fedge.data.targets import check_numbers, check_tokens, numbers
from fedge.errors import ConfigError, DataError, unknown

UNSCALED: Scale = ((0.0,), (1.0,))
KINDS = {  # what a model makes of each type: core.client.normalise
    "bytes": ("uint8",),
    "floats": ("float16", "float32", "float64", "bfloat16"),
    "integers": ("int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    "booleans": ("bool",),
}
LARGEST, LEAST = 3e38, 2e-38  # what a float32 and a bfloat16 can hold; XLA takes less than LEAST for 0
MOST_SAMPLES = 2**31 - 1  # they are numbered by 32 bits
MOST_CLASSES = 1_000_000  # a model has an output for each
TENTHS = 10


class Strata(NamedTuple):
    """This says what training samples are dealt and drawn by: which of several kinds each of them is."""

    label: NDArray[np.int32]
    kinds: int
    names: tuple[str, ...]  # none where kinds go by their numbers


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images are NHWC, and bytes stay bytes (they become numbers on the device); labels are 0..classes-1.

    With classes=0 targets are real numbers instead, one or several for each sample (task="regression"). Token ids
    (integers) may have a label for each position (task="tokens"), of which those below 0 are not counted.
    """

    name: str
    x_train: NDArray[Any]
    y_train: NDArray[Any]  # int32, or floats where classes=0
    x_test: NDArray[Any]
    y_test: NDArray[Any]
    classes: int
    scale: Scale = UNSCALED  # channel mean and standard deviation, for values in [0, 1]
    class_names: tuple[str, ...] = ()  # one for each class, where they have names
    client: NDArray[np.int32] | None = None  # who each training sample comes from, where that is known: 0, 1, …
    task: str = ""  # what targets these are, one of core.objective.TASKS; found out unless given

    def __post_init__(self) -> None:
        x_train, x_test = self.x_train, self.x_test
        ends = [_check_images(f"{self.name}: {part} images", x) for part, x in (("train", x_train), ("test", x_test))]
        for part, x, y in (("train", x_train, self.y_train), ("test", x_test, self.y_test)):
            self._check_targets(f"{self.name}: {part}", y, x)
        if self.y_train.shape[1:] != self.y_test.shape[1:]:
            raise DataError(
                f"{self.name}: train targets {self.y_train.shape[1:]} and test targets {self.y_test.shape[1:]} differ "
                "in shape; give both the same"
            )
        if self.class_names and len(self.class_names) != self.classes:
            raise DataError(
                f"{self.name}: {len(self.class_names)} class_names do not fit {self.classes} classes; give one for each"
            )
        if self.client is not None:
            check_owners(f"{self.name}: client", self.client, len(x_train))
        if x_train.shape[1:] != x_test.shape[1:]:
            raise DataError(
                f"{self.name}: train images {x_train.shape[1:]} and test images {x_test.shape[1:]} differ in shape"
            )
        if _kind(x_train) != _kind(x_test):
            raise DataError(
                f"{self.name}: train images are {_kind(x_train)} ({x_train.dtype}) and test images are "
                f"{_kind(x_test)} ({x_test.dtype}), which are scaled differently; make them of one type"
            )
        if _kind(x_train) != "integers":
            _check_scale(self.name, self.scale, x_train.shape, np.asarray(ends, np.float32))
        elif self.scale != UNSCALED:
            raise DataError(f"{self.name}: scale has no meaning for integers ({x_train.dtype}); leave scale out")

    @classmethod
    def of(
        cls, x_train: ArrayLike, y_train: ArrayLike, x_test: ArrayLike, y_test: ArrayLike, *,
        name: str = "custom", classes: int | None = None, scale: Scale = UNSCALED, class_names: Sequence[str] = (),
        client: ArrayLike | None = None, task: str = "",
    ) -> Dataset:  # fmt: skip
        """Make a data set of any arrays.

        Bytes are pixels and become numbers in [0, 1]; floats are taken as they are. Integers of another type are
        pixels too where they come as N × H × W × C, and must then fit bytes; otherwise they reach the model unchanged
        (token ids, counts). Labels are integers from 0, or with task="regression" (or classes=0) real numbers, or with
        task="tokens" integers for each position, −1 where none is to be predicted. `class_names` are shown in pictures;
        `client` says for each training sample which natural client, numbered from 0, it comes from.
        """
        xs = [_images(f"{name}: {part}", x) for part, x in (("train", x_train), ("test", x_test))]
        owners = None if client is None else check_owners(f"{name}: client", client, len(xs[0]))
        more: dict[str, Any] = {"class_names": tuple(map(str, class_names)), "client": owners, "task": task}
        parts = (("train", y_train), ("test", y_test))
        none = classes is not None and not isinstance(classes, bool) and classes == 0
        if none or task == "regression":
            if not none and classes is not None:
                raise DataError(f"{name}: classes={classes} has no meaning for task=regression; leave classes out")
            train, test = (numbers(f"{name}: {part}", _array(f"{name}: {part} targets", y)) for part, y in parts)
            return cls(name, xs[0], train, xs[1], test, 0, _scale(name, scale), **more)
        ys = [_labels(f"{name}: {part}", y) for part, y in parts]
        found = max(1, *(int(y.max()) + 1 for y in ys))
        if classes is None:
            classes = found
        elif isinstance(classes, bool) or not isinstance(classes, int | np.integer) or classes < 1:
            raise DataError(f"{name}: classes={classes} is not a number of classes; give an integer from 1")
        if found > classes:
            raise DataError(f"{name}: labels go up to {found - 1}, which does not fit classes={classes}")
        if classes > MOST_CLASSES:
            raise DataError(
                f"{name}: labels go up to {found - 1}, and a model would have {classes:,} outputs; at most "
                f"{MOST_CLASSES:,} are allowed; number the classes from 0 (np.unique(labels, return_inverse=True)[1])"
            )
        train, test = (np.maximum(y, -1).astype(np.int32) if y.ndim > 1 else y.astype(np.int32) for y in ys)
        return cls(name, xs[0], train, xs[1], test, int(classes), _scale(name, scale), **more)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.x_train.shape[1:]

    @cached_property
    def strata(self) -> Strata:
        """Tell training samples apart: by class, or by the tenth of the training part that a real target lies in (the
        first of several).

        Where every position has a label of its own, all samples are of one kind.
        """
        if self.task == "tokens":
            return Strata(np.zeros(len(self.y_train), np.int32), 1, ("any",))
        if self.classes:
            return Strata(self.y_train, self.classes, self.class_names)
        y = self.y_train.reshape(len(self.y_train), -1)[:, 0]
        ends = np.unique(np.quantile(y, np.arange(1, TENTHS) / TENTHS))
        label = np.searchsorted(ends, y, side="left").astype(np.int32)  # ≤ the end of its own tenth
        return Strata(label, len(ends) + 1, (*(f"≤ {end:.3g}" for end in ends), f"> {ends[-1]:.3g}"))

    def _check_targets(self, what: str, y: NDArray[Any], x: NDArray[Any]) -> None:
        if not self.task:
            positions = _kind(x) == "integers" and y.shape == x.shape and y.ndim > 1
            task = "regression" if self.classes == 0 else "tokens" if positions else "classification"
            object.__setattr__(self, "task", task)
        if self.task not in TASKS:
            raise ConfigError(unknown("task", self.task, TASKS))
        if self.task == "regression":
            check_numbers(what, y, len(x))
        elif self.task == "tokens":
            check_tokens(what, y, len(x), self.classes)
        else:
            _check_labels(what, y, len(x), self.classes)


def _kind(x: NDArray[Any]) -> str | None:
    return next((kind for kind, types in KINDS.items() if x.dtype.name in types), None)


def _array(what: str, given: ArrayLike) -> NDArray[Any]:
    """Return one array in this machine's byte order."""
    if np.ma.is_masked(given):
        raise DataError(f"{what} have masked values; fill them or leave their samples out")
    try:
        array = np.asarray(given)
    except (ValueError, TypeError, RuntimeError) as problem:
        raise DataError(f"{what} cannot be made one array ({str(problem).splitlines()[0][:120]})") from None
    if array.ndim == 0 or len(array) == 0:
        raise DataError(f"{what} are empty (shape {array.shape}); give at least one sample")
    if len(array) > MOST_SAMPLES:
        raise DataError(f"{what} are {len(array):,}; at most {MOST_SAMPLES:,} are allowed; leave some out")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _images(what: str, given: ArrayLike) -> NDArray[Any]:
    x = _array(f"{what} images", given)
    if _kind(x) != "integers" or x.ndim != 4 or x.size == 0:
        return x
    low, high = _extremes(x)
    if low < 0 or high > 255:
        raise DataError(
            f"{what} images are {x.dtype} from {low} to {high}, and pixels must fit bytes (0 to 255); "
            "give uint8, or floats that are scaled already"
        )
    return x.astype(np.uint8)


def _check_images(what: str, x: NDArray[Any]) -> tuple[float, float]:
    """Check values and return the least and the largest that the model may see before scaling."""
    kind = _kind(x)
    if kind is None:
        raise DataError(
            f"{what} are of type {x.dtype}; give bytes (uint8), floats (float32), or integers such as token ids"
        )
    if x.size == 0:
        raise DataError(f"{what} are {x.shape}, which holds no values; give at least one image of one value")
    if kind in ("bytes", "booleans"):
        return 0.0, 1.0
    low, high = _extremes(x)
    if kind == "integers" and (low < -(2**31) or high >= 2**31):
        raise DataError(f"{what} are integers from {low} to {high}, and must fit 32 bits; give smaller ones")
    if kind == "floats" and not (low >= -LARGEST and high <= LARGEST):  # nor is NaN
        with np.errstate(all="ignore"):
            values = x.reshape(len(x), -1)
            good = np.isfinite(values) & (np.abs(values) <= LARGEST)
        first, count = int(np.argmin(good.all(axis=1))), int(np.count_nonzero(~good))
        raise DataError(
            f"{what} have {count:,} values that are NaN, infinite or beyond a float32, the first in image {first}; "
            "replace them or leave their images out"
        )
    return low, high


def _extremes(x: NDArray[Any]) -> tuple[Any, Any]:
    """Return the smallest and the largest value, or NaN where there is one, in one pass over the memory."""
    rows = max(1, 2**20 // (x.nbytes // len(x)))
    with np.errstate(invalid="ignore"):
        each = [(piece.min(), piece.max()) for piece in (x[at : at + rows] for at in range(0, len(x), rows))]
        return np.min([low for low, _ in each]).item(), np.max([high for _, high in each]).item()


def _labels(what: str, given: ArrayLike) -> NDArray[Any]:
    y = _array(f"{what} labels", given)
    if not np.issubdtype(y.dtype, np.integer):
        hint = ", or predict them as numbers with task=regression" if np.issubdtype(y.dtype, np.floating) else ""
        raise DataError(
            f"{what} labels must be integers from 0, not {y.dtype}; "
            "number the classes with np.unique(labels, return_inverse=True)[1]" + hint
        )
    return y


def _check_labels(what: str, y: NDArray[Any], images: int, classes: int) -> None:
    if y.shape != (images,):
        hint = "; take the column out with labels.reshape(-1)" if y.shape == (images, 1) else ""
        hint = "; one-hot labels become numbers with labels.argmax(1)" if y.shape == (images, classes) else hint
        raise DataError(f"{what} needs one label per image, not {images} images and labels {y.shape}{hint}")
    if y.min() < 0 or y.max() >= classes:
        raise DataError(f"{what} labels must be integers from 0 to {classes - 1}, not from {y.min()} to {y.max()}")


def _scale(name: str, given: Any) -> Scale:
    """Return mean and deviation as tuples, from numbers, lists or arrays."""
    try:
        mean, deviation = (tuple(np.asarray(part, np.float64).reshape(-1).tolist()) for part in given)
    except (ValueError, TypeError, OverflowError):
        raise DataError(f"{name}: scale={given} is not (means, deviations), one number per channel in each") from None
    return mean, deviation


def _check_scale(name: str, scale: Scale, shape: tuple[int, ...], ends: NDArray[np.float32]) -> None:
    """Check that scaling gives finite numbers at both `ends` of the values, and so between them."""
    channels = shape[-1] if len(shape) > 1 else 1
    if any(len(values) not in (1, channels) for values in scale):
        raise DataError(
            f"{name}: scale has {len(scale[0])} means and {len(scale[1])} deviations for {channels} channels; "
            "give one number, or one per channel"
        )
    with np.errstate(all="ignore"):
        mean, deviation = (np.asarray(values, np.float32) for values in scale)
        results = (mean, 255 * deviation, 1 / deviation, (ends[..., None] - mean) / deviation)
    if not (np.all(deviation >= LEAST) and all(np.all(np.abs(values) <= LARGEST) for values in results)):
        raise DataError(
            f"{name}: scale has the means {scale[0]} and the deviations {scale[1]}, and would not give finite numbers; "
            "means must be finite and deviations above 0"
        )
