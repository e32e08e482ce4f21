"""Tests share a data set of a few random images, its files in the formats of known sets, and places of their own."""

import gzip
import hashlib
import struct
from dataclasses import replace

import numpy as np
import pytest

from fedge.data.formats import IDX
from fedge.data.known import DATASETS


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDGE_DATA", raising=False)


def few(shape, samples, seed=0):
    """Draw random images and labels."""
    rng = np.random.default_rng(seed)
    draw = lambda n: (rng.integers(0, 256, (n, *shape), np.uint8), rng.integers(0, 10, n).astype(np.uint8))  # noqa: E731
    return dict(zip(IDX, (*draw(samples[0]), *draw(samples[1])), strict=True))


def source_of(arrays, name="tiny"):
    """Return what fedge would know about these arrays."""
    x = arrays["x_train"]
    digest = {key: hashlib.sha256(np.ascontiguousarray(array).data).hexdigest() for key, array in arrays.items()}
    known = DATASETS["cifar10" if name == "cifar10" else "mnist"]
    return replace(known, name=name, shape=x.shape[1:], samples=(len(x), len(arrays["x_test"])), digest=digest)


def idx(array):
    """Write an idx file; images lose their channel axis."""
    array = array[..., 0] if array.ndim == 4 else array
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def put_idx(folder, arrays, packed=True):
    folder.mkdir(parents=True)
    for key, name in IDX.items():
        raw = idx(arrays[key])
        (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(raw, mtime=0) if packed else raw)
    return folder


def put_cifar(folder, arrays):
    """Each record is a label, then red, green and blue planes of 32 × 32."""
    folder.mkdir(parents=True)
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    images = [*np.split(arrays["x_train"], 5), arrays["x_test"]]
    labels = [*np.split(arrays["y_train"], 5), arrays["y_test"]]
    for name, x, y in zip(names, images, labels, strict=True):
        np.concatenate([y[:, None], x.transpose(0, 3, 1, 2).reshape(len(x), -1)], axis=1).tofile(folder / name)
    return folder


@pytest.fixture
def arrays():
    return few((4, 3, 1), (6, 5))


@pytest.fixture
def tiny(arrays, monkeypatch):
    """Make a known set with these arrays as its content."""
    monkeypatch.setitem(DATASETS, "tiny", source_of(arrays))
    return DATASETS["tiny"]


@pytest.fixture
def given(arrays, tmp_path, monkeypatch):
    """Let FEDGE_DATA name the idx files of the tiny set."""
    monkeypatch.setenv("FEDGE_DATA", str(tmp_path / "given"))
    return put_idx(tmp_path / "given/tiny", arrays)
