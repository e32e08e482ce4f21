"""A data set of one's own comes from a file (.npz, .csv) or from a function, package.module:function.

    arrays       x_train, y_train, x_test, y_test; or x, y, of which a part is held out for testing
                 client (who a sample comes from) for the samples of y_train, or of y
    held out     the first test_fraction of a permutation that the seed draws; what stays keeps its order
    CSV          (x − mean) / deviation in each column, both of the training part; a constant column becomes 0
    classes      words or integers, in ascending order; names are kept unless they are 0..classes-1

Nothing is ever unpickled, and whatever does not fit is refused in one sentence.
"""

from __future__ import annotations

import logging
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedge import plugins
from fedge.core.keys import Purpose, host_rng
from fedge.data.csv_file import read_csv
from fedge.data.dataset import MOST_CLASSES, Dataset
from fedge.data.own_numbers import is_ordinary, read_file
from fedge.errors import DataError, brief
from fedge.plugins import find, is_name

log = logging.getLogger(__name__)
DATA_FILES = (".npz", ".csv")
TEST_FRACTION = 0.2
PARTS, WHOLE, CLIENT = ("x_train", "y_train", "x_test", "y_test"), ("x", "y"), "client"
KEYS = "x_train, y_train, x_test and y_test, or x and y, and may hold client"
UNREADABLE = (OSError, ValueError, EOFError, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error)
Arrays = Mapping[str, Any]


class Reading(NamedTuple):
    """This says how to read data of one's own."""

    seed: int = 0
    test_fraction: float = TEST_FRACTION
    target: str | None = None  # columns of a CSV
    client_column: str | None = None
    task: str | None = "classification"  # what the targets are for; None: what they look like


def is_data_file(given: str) -> bool:
    return Path(given).suffix.lower() in DATA_FILES


def is_table(given: str) -> bool:
    return Path(given).suffix.lower() == ".csv"


def is_own(given: str) -> bool:
    """Say whether this names data of one's own: a file or a function."""
    return is_data_file(given) or is_name(given)


def load_own(given: str, how: Reading) -> Dataset:
    """Make the data set that a file or a function, package.module:function, holds."""
    if is_name(given):
        return _load(given, how, find("data", given, ()))
    path = Path(given)
    stamp = path.stat() if is_ordinary(path) else None
    return _load(given, how, stamp and (stamp.st_mtime_ns, stamp.st_size, stamp.st_ino))


def forget() -> None:
    """Let go of the data set that was made last."""
    _load.cache_clear()


@lru_cache(maxsize=1)
def _load(given: str, how: Reading, stamp: Any) -> Dataset:
    """Make a data set once for all runs of a comparison; `stamp` is the function, or changes with the file."""
    return call(given, stamp, how) if callable(stamp) else load_file(Path(given), how)


def load_file(path: Path, how: Reading) -> Dataset:
    """Read a data set from a file of arrays (.npz) or a table (.csv)."""
    what = f"data={brief(path)}"
    if path.suffix.lower() == ".npz":
        return from_arrays(what, path.name, _read_npz(what, path), how)
    assert how.target is not None
    table = read_csv(what, path, how.target, how.client_column)
    client = {} if table.client is None else {CLIENT: table.client}
    parts = _hold_out(what, {"x": table.features, "y": table.target} | client, how)
    _standardise(parts)
    return _dataset(what, path.name, parts, how)


def _standardise(parts: dict[str, NDArray[Any]]) -> None:
    """Take off each column's mean and divide by its deviation, both of the training part."""
    train = parts["x_train"]
    with np.errstate(all="ignore"):  # the data set refuses what is not finite then
        mean, deviation = train.mean(0), np.where(train.max(0) > train.min(0), train.std(0), 1)
        for part in ("x_train", "x_test"):
            parts[part] = ((parts[part] - mean) / deviation).astype(np.float32)


def call(name: str, function: Callable[[], Any], how: Reading) -> Dataset:
    """Call a function that returns a data set, or arrays by name."""
    what = f"data={brief(name)}"
    made = plugins.call(what, function, error=DataError)
    if isinstance(made, Dataset):
        _refuse_fraction(what, how)
        return made if made.name != "custom" else replace(made, name=name)
    if not isinstance(made, Mapping):
        raise DataError(f"{what} returned a {type(made).__name__}; return a fedge.Dataset, or a dict with {KEYS}")
    return from_arrays(what, name, made, how)


def _read_npz(what: str, path: Path) -> Arrays:
    """Read arrays, never objects: those would be pickled, and run what is in them."""
    content = read_file(what, path)
    key = ""
    try:
        file = np.load(BytesIO(content), allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise ValueError("it is a single array")
        arrays = {}
        for key in file.files:
            arrays[key] = file[key]
        return arrays
    except UNREADABLE as problem:
        if "Object arrays" in str(problem):
            raise DataError(f"{what}: array {brief(key)} holds objects; save numbers or strings (astype)") from None
        reason = brief((str(problem).splitlines() or ["it is damaged"])[0])
        hint = "" if "pickle" not in reason else "it is no .npz file"
        raise DataError(f"{what} cannot be read ({hint or reason}); make it with numpy.savez") from None


def from_arrays(what: str, name: str, arrays: Arrays, how: Reading) -> Dataset:
    """Make a data set of arrays by name, with a part held out where they have no test part."""
    keys = set(map(str, arrays))
    if keys - {CLIENT} == set(WHOLE):
        return _dataset(what, name, _hold_out(what, arrays, how), how)
    if keys - {CLIENT} != set(PARTS):
        held = ", ".join(sorted(keys)) or "nothing"
        raise DataError(f"{what} holds {brief(held, 200)}; it must hold {KEYS}")
    _refuse_fraction(what, how)
    return _dataset(what, name, arrays, how)


def _dataset(what: str, name: str, arrays: Arrays, how: Reading) -> Dataset:
    targets = [_plain(f"{what}: {part}", arrays[part]) for part in ("y_train", "y_test")]
    about = f"{what}: " + (f"target {brief(how.target)}" if how.target else "y")
    task = how.task or _likely_task(targets)
    classes, names = None, tuple[str, ...]()
    if task == "regression":
        targets = [_real(about, y) for y in targets]
    elif task == "classification" and all(y.ndim == 1 for y in targets):
        both, names = number_classes(about, np.concatenate(targets))
        classes, targets = max(len(names), int(both.max()) + 1), np.split(both, [len(targets[0])])
    client = number_clients(what, arrays[CLIENT], len(targets[0])) if CLIENT in arrays else None
    return Dataset.of(
        arrays["x_train"], targets[0], arrays["x_test"], targets[1], name=name, classes=classes, task=task,
        class_names=names, client=client,
    )  # fmt: skip


def _likely_task(targets: list[NDArray[Any]]) -> str:
    """Say what targets look as if they were for, where a task of the user's own decides what becomes of them."""
    if all(y.ndim > 1 and y.dtype.kind in "iu" for y in targets):
        return "tokens"
    try:
        values = np.concatenate(targets).astype(np.float64)
    except ValueError:  # words, or parts of different shapes, which are refused as such
        return "classification"
    return "classification" if (values == np.floor(values)).all() else "regression"


def _refuse_fraction(what: str, how: Reading) -> None:
    if how.test_fraction != TEST_FRACTION:
        raise DataError(f"{what} has a test part of its own; leave test_fraction={how.test_fraction:g} out")


def _hold_out(what: str, arrays: Arrays, how: Reading) -> dict[str, Any]:
    """Part samples into those to train on and those to test with, drawn by the seed."""
    x, y = _plain(f"{what}: x", arrays["x"]), _plain(f"{what}: y", arrays["y"])
    if x.ndim == 0 or len(x) != len(y) or len(x) < 2:
        raise DataError(f"{what} has x of shape {x.shape} and y of shape {y.shape}; give as many of each, at least 2")
    tested = min(max(round(how.test_fraction * len(x)), 1), len(x) - 1)
    order = host_rng(how.seed, Purpose.HELD_OUT).permutation(len(x))
    test, train = np.sort(order[:tested]), np.sort(order[tested:])
    parts = {"x_train": x[train], "y_train": y[train], "x_test": x[test], "y_test": y[test]}
    if CLIENT in arrays:
        owner = _plain(f"{what}: client", arrays[CLIENT])
        if owner.shape != (len(x),):
            raise DataError(f"{what}: client has the shape {owner.shape}; give one for each of {len(x):,} samples")
        parts[CLIENT] = owner[train]
        if lost := len(np.unique(owner)) - len(np.unique(owner[train])):
            log.warning("%s: all samples of %d of its clients are held out, and so these do not train", what, lost)
    return parts


def _plain(what: str, given: Any) -> NDArray[Any]:
    """Return one array that holds no objects; an array of strings or numbers in a list becomes one."""
    try:
        found = np.asarray(given)
    except (ValueError, TypeError) as problem:
        raise DataError(f"{what} cannot be made one array ({brief(problem)})") from None
    if found.dtype.kind == "O":
        raise DataError(f"{what} holds objects; give numbers or strings (astype)")
    if found.ndim == 0:
        raise DataError(f"{what} is a single value; give one for each sample")
    return found


def _real(what: str, y: NDArray[Any]) -> NDArray[np.float64]:
    try:
        if y.dtype.kind not in "iufU":
            raise ValueError
        return y.astype(np.float64)
    except ValueError:
        raise DataError(f"{what} must be numbers for task=regression; leave task out for classes") from None


def number_classes(what: str, given: NDArray[Any]) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Number classes that are words or integers, and return their names (none where they are 0..classes-1)."""
    kinds, which = np.unique(given.astype(str) if given.dtype.kind == "S" else given, return_inverse=True)
    if kinds.dtype.kind == "U":
        kinds, order = _sort_numbers(what, kinds)
        which = order[which]
    if kinds.dtype.kind == "f":
        if (broken := ~np.isfinite(kinds) | (kinds != np.floor(kinds))).any():
            raise _no_class(what, kinds[broken][0])
        kinds = kinds.astype(np.int64)
    if kinds.dtype.kind not in "Uiub":
        raise DataError(f"{what} holds {kinds.dtype}, which is neither numbers nor strings; give one of these")
    if len(kinds) > MOST_CLASSES:
        raise DataError(f"{what} has {len(kinds):,} classes; at most {MOST_CLASSES:,} are allowed")
    plain = kinds.dtype.kind in "iu" and kinds[0] == 0 and kinds[-1] == len(kinds) - 1
    return which.reshape(-1).astype(np.int32), () if plain else tuple(map(str, kinds.tolist()))


def _sort_numbers(what: str, words: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Read words that are all integers, maybe written as 3.0: return these, sorted, and the place of each word.

    Where one of them is no number, all stay words.
    """
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        return words, np.arange(len(words))
    for word, number in zip(words, numbers, strict=True):
        if not number.is_integer() or abs(number) > 2**53:
            raise _no_class(what, word)
    return np.unique(np.asarray(numbers, np.int64), return_inverse=True)


def _no_class(what: str, example: Any) -> DataError:
    return DataError(
        f"{what} holds {brief(example)}, which is no class; classes are integers or words, and real numbers are for "
        "task=regression"
    )


def number_clients(what: str, given: Any, samples: int) -> NDArray[np.int32]:
    """Number natural clients by their ids, which are integers or words, in ascending order."""
    ids = _plain(f"{what}: client", given)
    if ids.shape != (samples,):
        raise DataError(f"{what}: client has the shape {ids.shape}; give one for each of {samples:,} training samples")
    if ids.dtype.kind not in "USiu":
        raise DataError(f"{what}: client holds {ids.dtype}; give integers or words")
    return np.unique(ids, return_inverse=True)[1].reshape(-1).astype(np.int32)
