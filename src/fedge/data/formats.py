"""This file reads data sets in the formats they are published in.

What a file must hold is known before it is opened, so a reader is told the shape it must find, and reads no more of a
file, and unpacks no more of an archive, than that takes.
"""

from __future__ import annotations

import gzip
import math
import shutil
import struct
import tarfile
import tempfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from fedge.errors import DataError

Arrays = dict[str, NDArray[np.uint8]]
Shapes = dict[str, tuple[int, ...]]
IDX = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
CIFAR_ARCHIVE, CIFAR_FOLDER = "cifar-10-binary.tar.gz", "cifar-10-batches-bin"
CIFAR_BINS = {"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)}
CIFAR_RECORD = 1 + 3 * 32 * 32  # a label byte; planes of red, green and blue
UNREADABLE = (OSError, EOFError, ValueError, zlib.error, tarfile.TarError)


def read_idx_folder(folder: Path, shapes: Shapes) -> Arrays:
    return {key: read_idx(_packed_or_plain(folder / name), shapes[key]) for key, name in IDX.items()}


def _packed_or_plain(path: Path) -> Path:
    packed = path.with_name(path.name + ".gz")
    for candidate in (packed, path):
        if candidate.is_file():
            return candidate
    raise DataError(f"{path} is missing (and so is {packed.name}); restore it or fetch the data set again")


def read_idx(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Read an idx file of unsigned bytes, gzipped or not. Images get a channel axis that the file does not have."""
    sizes = shape[:3]
    header = struct.pack(f">HBB{len(sizes)}I", 0, 8, len(sizes), *sizes)
    length = len(header) + math.prod(sizes)
    try:
        if path.stat().st_size > length + length // 100 + 2**16:  # deflate makes nothing larger than that
            raise ValueError(f"it is larger than {length:,} bytes can be")
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            raw = file.read(length + 1)
        if raw[: len(header)] != header:
            raise ValueError(f"its header is not that of {sizes} unsigned bytes")
        if len(raw) != length:
            raise ValueError(f"it holds {'more' if len(raw) > length else 'less'} than its header says")
    except UNREADABLE as problem:
        raise DataError(f"{path} is damaged ({problem}); delete it and fetch the data set again") from problem
    return np.frombuffer(raw, np.uint8, offset=len(header)).reshape(shape)


def read_cifar_folder(folder: Path, shapes: Shapes) -> Arrays:
    """Read CIFAR-10 in its binary form: the archive, the folder in it, or the files of that folder."""
    if (folder / CIFAR_ARCHIVE).is_file():
        files = [name for names in CIFAR_BINS.values() for name in names]
        with tempfile.TemporaryDirectory(prefix="fedge-") as unpacked:
            unpack(folder / CIFAR_ARCHIVE, [f"{CIFAR_FOLDER}/{name}" for name in files], Path(unpacked), shapes)
            return _read_cifar_bins(Path(unpacked), shapes)
    return _read_cifar_bins(folder / CIFAR_FOLDER if (folder / CIFAR_FOLDER).is_dir() else folder, shapes)


def _read_cifar_bins(folder: Path, shapes: Shapes) -> Arrays:
    arrays: Arrays = {}
    for part, names in CIFAR_BINS.items():
        each = shapes[f"y_{part}"][0] // len(names)
        rows = np.concatenate([_read_cifar_bin(folder / name, each) for name in names])
        arrays[f"x_{part}"] = np.ascontiguousarray(rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        arrays[f"y_{part}"] = np.ascontiguousarray(rows[:, 0])
    return arrays


def _read_cifar_bin(path: Path, images: int) -> NDArray[np.uint8]:
    length = images * CIFAR_RECORD
    try:
        if not path.is_file():
            raise ValueError("there is no such file")
        with path.open("rb") as file:
            raw = file.read(length + 1)
        if len(raw) != length:
            raise ValueError(f"it does not hold {length:,} bytes")
    except UNREADABLE as problem:
        raise DataError(f"{path} is missing or damaged ({problem}); fetch the data set again") from None
    return np.frombuffer(raw, np.uint8).reshape(images, CIFAR_RECORD)


def unpack(archive: Path, wanted: Collection[str], folder: Path, shapes: Shapes) -> None:
    """Write the wanted members of a gzipped tar archive of a data set into a folder, each under its last name.

    The archive is read once from front to back, up to twice the size of the set, so nothing in it can make this run on.
    """
    limit = 2 * sum(math.prod(shape) for shape in shapes.values()) + 2**22
    try:
        with gzip.open(archive) as packed:
            bounded: IO[bytes] = _Bounded(packed, limit)  # type: ignore[assignment]  # tarfile calls nothing but read
            with tarfile.open(fileobj=bounded, mode="r|") as members:
                for member in members:
                    if member.name in wanted and member.isreg() and not member.issparse():
                        content = members.extractfile(member)
                        assert content is not None
                        with (folder / Path(member.name).name).open("xb") as file:
                            shutil.copyfileobj(content, file)
    except UNREADABLE as problem:
        raise DataError(
            f"{archive} cannot be unpacked ({problem}); if it is damaged, delete it and fetch it again"
        ) from None


class _Bounded:
    """This file refuses to be read beyond `limit` bytes, and at its end more often than would take it there.

    tarfile skips a member by reading it, also one that claims 2⁶⁰ bytes in a file that has ended.
    """

    def __init__(self, file: gzip.GzipFile, limit: int) -> None:
        self._file, self._left, self._limit = file, limit, limit

    def read(self, size: int) -> bytes:
        piece = self._file.read(size)
        self._left -= max(len(piece), tarfile.BLOCKSIZE)
        if self._left < 0:
            raise ValueError(f"it unpacks to more than {self._limit:,} bytes")
        return piece
