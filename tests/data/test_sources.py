import os
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from fedge.data import load, sources
from fedge.data.cache import cache_folder
from fedge.data.formats import IDX
from fedge.data.known import DATASETS, verify
from fedge.errors import DataError
from tests.data.conftest import few, put_cifar, put_idx, source_of

BUILTIN = Path(sources.__file__).parent / "builtin"


def test_built_in_set_is_balanced_real_and_small():
    data = load("fashion-mini")
    assert data.x_train.shape == (6000, 28, 28, 1)
    assert np.bincount(data.y_train).tolist() == [600] * 10
    assert np.bincount(data.y_test).tolist() == [100] * 10
    assert sum(f.stat().st_size for f in BUILTIN.iterdir()) < 4_000_000
    assert "MIT" in (BUILTIN / "LICENSE").read_text()


def test_fedge_data_serves_a_set_that_is_then_read_from_the_cache(tiny, given):
    assert sources.where("tiny") == str(given)
    assert len(load("tiny").x_train) == 6
    assert sources.where("tiny") == str(cache_folder() / "tiny")


def test_fedge_data_may_name_the_folder_of_the_set(tiny, given, monkeypatch):
    monkeypatch.setenv("FEDGE_DATA", str(given))
    assert sources.where("tiny") == str(given)
    assert len(load("tiny").x_train) == 6


def test_fedge_data_that_is_no_folder_is_said_and_ignored(tiny, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("FEDGE_DATA", str(tmp_path / "file"))
    assert sources.where("tiny") is None
    assert "is not a folder" in caplog.text


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "remove", "fifo"])
def test_a_damaged_file_is_named(tiny, given, damage):
    victim = given / f"{IDX['x_train']}.gz"
    raw = victim.read_bytes()
    victim.unlink()
    if damage == "fifo":
        os.mkfifo(victim)
    elif damage != "remove":
        flipped = raw[:40] + bytes([raw[40] ^ 255]) + raw[41:]
        victim.write_bytes({"truncate": raw[: len(raw) // 2], "flip": flipped, "empty": b""}[damage])
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte|x_train of tiny"):
        load("tiny")
    assert not cache_folder().exists()


@pytest.mark.parametrize("packed", [True, False])
def test_wrong_labels_in_a_valid_file_are_found_by_checksum(tiny, arrays, given, packed):
    shutil.rmtree(given)
    put_idx(given, arrays | {"y_test": arrays["y_test"] ^ 1}, packed)
    with pytest.raises(DataError, match=r"y_test of tiny .* does not have the expected checksum"):
        load("tiny")


@pytest.mark.parametrize("key", IDX)
def test_other_shapes_and_types_of_the_right_bytes_are_refused(tiny, arrays, key):
    """The checksum of all of these holds."""
    array = arrays[key]
    others = [array.reshape(-1, 1), array.reshape(1, *array.shape), array.view(np.int8), array.view(bool)]
    for other in [*others, np.moveaxis(array[..., None], -1, 0)]:
        with pytest.raises(DataError, match=rf"{key} of tiny from here is .* instead of uint8"):
            verify(tiny, arrays | {key: other}, "here")


@pytest.mark.parametrize("form", ["files", "folder", "archive"])
def test_cifar_in_its_canonical_forms(tmp_path, monkeypatch, form):
    arrays = few((32, 32, 3), (15, 3))
    home = tmp_path / "given/cifar10"
    bins = put_cifar(home if form == "files" else home / "cifar-10-batches-bin", arrays)
    if form == "archive":
        with tarfile.open(home / "cifar-10-binary.tar.gz", "w:gz") as archive:
            archive.add(bins, "cifar-10-batches-bin")
        shutil.rmtree(bins)
    monkeypatch.setitem(DATASETS, "cifar10", source_of(arrays, "cifar10"))
    monkeypatch.setenv("FEDGE_DATA", str(tmp_path / "given"))
    data = load("cifar10")
    for key, array in arrays.items():
        np.testing.assert_array_equal(getattr(data, key), array)


def test_a_truncated_cifar_file_is_named(tmp_path, monkeypatch):
    home = tmp_path / "cifar10"
    home.mkdir()
    (home / "data_batch_1.bin").write_bytes(b"short")
    monkeypatch.setenv("FEDGE_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"data_batch_1.bin is missing or damaged"):
        load("cifar10")


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
