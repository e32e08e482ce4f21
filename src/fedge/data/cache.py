"""The cache keeps decoded sets as folders of .npy files, which are mapped: a process holds what it reads of them.

Nothing is taken from here that was not verified by this process, whoever wrote it and whatever became of it since.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import math
import os
import tempfile
from pathlib import Path

import numpy as np
import pooch
from numpy.typing import NDArray

from fedge.data.formats import Arrays
from fedge.data.known import Source

log = logging.getLogger(__name__)


def cache_folder() -> Path:
    return Path(os.environ.get("FEDGE_CACHE") or pooch.os_cache("fedge")) / "data"


def read(source: Source) -> Arrays | None:
    """Return the arrays of a set, mapped and verified, or None where the cache has none or none that is right."""
    folder = cache_folder() / source.name
    try:
        return _read(source) if os.path.lexists(folder) else None
    except (OSError, ValueError) as problem:
        log.warning("%s is damaged and not used (%s)", folder, problem)
        return None


def keep(source: Source, arrays: Arrays) -> Arrays:
    """Return verified arrays as the cache has them from now on, or the same in memory where there can be no cache."""
    try:
        _store(source, arrays)
        return _read(source)
    except (OSError, ValueError) as problem:
        log.warning("%s cannot be kept in %s (%s)", source.name, cache_folder(), problem)
        return arrays


def _store(source: Source, arrays: Arrays) -> None:
    """Put verified arrays into the cache: whole or not at all, and once, whoever else may be doing so."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        dir=folder, prefix=f"{source.name}-", suffix=".part", ignore_cleanup_errors=True
    ) as temporary:
        new, old = Path(temporary) / "new", Path(temporary) / "old"
        new.mkdir()
        for key, array in arrays.items():
            np.save(new / f"{key}.npy", array, allow_pickle=False)
        try:
            new.rename(folder / source.name)
        except OSError:  # something is there already
            with contextlib.suppress(OSError, ValueError):
                _read(source)
                return  # another was faster, and may have mapped what it stored
            (folder / source.name).rename(old)
            new.rename(folder / source.name)


def _read(source: Source) -> Arrays:
    folder = cache_folder() / source.name
    return {key: _map(folder / f"{key}.npy", shape, source.digest[key]) for key, shape in source.shapes.items()}


def _map(path: Path, shape: tuple[int, ...], digest: str) -> NDArray[np.uint8]:
    """Map the array of a .npy file, whose header and content must be exactly those expected.

    The file is opened once, so what is mapped is what was verified. It is read, not looked at through the map, which
    would count as this process's memory. The header is a multiple of 64 bytes long: JAX on a CPU then needs no copy.
    """
    header = _header(shape)
    if not path.is_file():  # a fifo would be waited for
        raise ValueError(f"{path.name} is missing")
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size != len(header) + math.prod(shape) or file.read(len(header)) != header:
            raise ValueError(f"{path.name} does not hold {shape} bytes")
        if hashlib.file_digest(file, "sha256").hexdigest() != digest:
            raise ValueError(f"{path.name} does not have the expected checksum")
        return np.memmap(file, np.uint8, "r", len(header), shape)


def _header(shape: tuple[int, ...]) -> bytes:
    """Return what numpy.save writes before an array of bytes."""
    written = io.BytesIO()
    description = {"descr": "|u1", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(written, description)
    return written.getvalue()
