"""A partition and cells of one's own are integers: a client for each training sample, a cell for each client.

They come as arrays, or as files: .npy, or text with one integer a line and comments after # (.csv, .txt).
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedge.errors import DataError, brief

NUMBER_FILES = (".npy", ".csv", ".txt")
MOST_BYTES = 2**34  # 2³¹ samples with 8 bytes for each


def is_number_file(given: object) -> bool:
    """Say whether this has the name of a file that integers are read from."""
    return isinstance(given, str) and Path(given).suffix.lower() in NUMBER_FILES


def read_numbers(key: str, path: Path) -> NDArray[Any]:
    """Read the integers of a file that `key` names."""
    what = f"{key}={brief(path)}"
    content = read_file(what, path)
    try:
        if path.suffix.lower() == ".npy":
            return np.asarray(np.load(io.BytesIO(content), allow_pickle=False))
        lines = [line.split("#")[0].strip() for line in content.decode("utf-8-sig").splitlines()]
    except (ValueError, EOFError) as problem:  # also what is no UTF-8
        reason = (str(problem).splitlines() or ["it is damaged"])[0]
        raise DataError(f"{what} cannot be read ({brief(reason)}); save plain integers in it") from None
    found = []
    for number, line in enumerate(lines, 1):
        if line:
            try:
                found.append(int(line.rstrip(",; \t")))
            except ValueError:
                raise DataError(
                    f"{what} has {brief(line, 40)!r} in line {number}, which is no integer; write one integer a line, "
                    "without a heading"
                ) from None
    return np.asarray(found, np.int64 if all(abs(n) < 2**63 for n in found) else object)


def require_there(what: str, path: Path) -> None:
    """Refuse what is no ordinary file; a pipe or a device is refused before anything waits for it."""
    if not is_ordinary(path):
        raise DataError(f"{what} is no file in {Path.cwd()}; give one that is there")


def read_file(what: str, path: Path) -> bytes:
    """Read an ordinary file."""
    require_there(what, path)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"{what} has more than {MOST_BYTES:,} bytes; give a smaller file")
        return path.read_bytes()
    except OSError as problem:
        raise DataError(f"{what} cannot be read ({problem.strerror}); give a file that can be read") from None


def is_ordinary(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long for a name, or with a zero in it
        return False


def check_owners(what: str, given: ArrayLike, samples: int) -> NDArray[np.int32]:
    """Return the client of each training sample; each of the clients 0, 1, … must own one."""
    return _check(what, given, "client", "training sample", samples)


def check_cells(what: str, given: ArrayLike, clients: int | None = None) -> NDArray[np.int32]:
    """Return the cell of each client; each of the cells 0, 1, … must have one."""
    return _check(what, given, "cell", "client", clients)


def _check(what: str, given: ArrayLike, holder: str, member: str, members: int | None) -> NDArray[np.int32]:
    form = f"give a {holder} for each {member}, numbered from 0"
    try:
        numbers = np.asarray(given)
    except (ValueError, TypeError):
        raise DataError(f"{what} cannot be made one array; {form}") from None
    if numbers.ndim != 1 or len(numbers) == 0:
        raise DataError(f"{what} has the shape {numbers.shape}; {form}")
    if numbers.dtype.kind not in "iu":
        raise DataError(f"{what} holds {numbers.dtype} instead of integers; {form}")
    if members is not None and len(numbers) != members:
        raise DataError(f"{what} has {len(numbers):,} entries, and there are {members:,} {member}s; {form}")
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0:
        at = int(np.argmin(numbers))
        raise DataError(f"{what} has {low} at position {at:,}, and {holder}s are numbered from 0; {form}")
    if high >= len(numbers):  # then some of 0..high must be missing
        raise DataError(
            f"{what} has {holder}s up to {high:,} and only {len(numbers):,} entries, so that some have no {member}; "
            "number them without gaps (np.unique(ids, return_inverse=True)[1])"
        )
    without = np.flatnonzero(np.bincount(numbers, minlength=high + 1) == 0)
    if len(without):
        raise DataError(
            f"{what} leaves {holder} {without[0]:,} without a {member} ({len(without):,} of {high + 1:,} {holder}s are "
            "empty); number them without gaps (np.unique(ids, return_inverse=True)[1])"
        )
    return numbers.astype(np.int32)
