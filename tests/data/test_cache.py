import os
import threading

import numpy as np
import pytest

from fedge.data import cache, formats, load, sources
from fedge.data.cache import cache_folder
from fedge.data.formats import IDX


def same(found, arrays):
    return found.keys() == arrays.keys() and all(np.array_equal(found[key], arrays[key]) for key in arrays)


def test_what_is_decoded_is_decoded_once_and_then_mapped(tiny, arrays, given, monkeypatch):
    first = load("tiny")
    monkeypatch.setattr(formats, "read_idx", None)
    for data in (first, load("tiny")):
        assert isinstance(data.x_train, np.memmap)
        assert data.x_train.ctypes.data % 64 == 0  # so that JAX need not copy it
        np.testing.assert_array_equal(data.x_train, arrays["x_train"])
    for key, array in arrays.items():  # what the format's own reader makes of it
        np.testing.assert_array_equal(np.load(cache_folder() / f"tiny/{key}.npy", allow_pickle=False), array)
    assert [p.name for p in cache_folder().iterdir()] == ["tiny"]


def test_a_cache_that_cannot_be_written_is_done_without(tiny, given, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("FEDGE_CACHE", str(tmp_path / "file"))
    assert len(load("tiny").x_train) == 6
    assert "tiny cannot be kept in" in caplog.text


def flip(path):
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)


DAMAGES = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "flipped": flip,
    "empty": lambda path: path.write_bytes(b""),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "removed": lambda path: path.unlink(),
    "fifo": lambda path: (path.unlink(), os.mkfifo(path)),
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "link to nothing": lambda path: (path.unlink(), path.symlink_to("nothing")),
    "other shape": lambda path: np.save(path, np.load(path).reshape(-1, 1)),
    "other order": lambda path: reorder(path),
    "other type": lambda path: np.save(path, np.load(path).view(np.int8)),
}


def reorder(path):
    """Write the same bytes after a header that gives them another order."""
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"'fortran_order': False, ", b"'fortran_order': True,  "))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_cache_is_said_and_made_anew(tiny, arrays, given, damage, caplog):
    load("tiny")
    DAMAGES[damage](cache_folder() / "tiny/x_train.npy")
    np.testing.assert_array_equal(load("tiny").x_train, arrays["x_train"])
    assert "tiny is damaged and not used" in caplog.text
    assert same(cache.read(tiny), arrays)
    assert [p.name for p in cache_folder().iterdir()] == ["tiny"]


def test_a_damaged_cache_that_cannot_be_replaced_is_never_used(tiny, arrays, given, monkeypatch, caplog):
    load("tiny")
    flip(cache_folder() / "tiny/y_train.npy")

    def refuse(*paths, **options):
        raise PermissionError("read-only file system")

    for name in ("rename", "replace", "unlink", "rmdir", "mkdir"):
        monkeypatch.setattr(os, name, refuse)
    data = load("tiny")
    np.testing.assert_array_equal(data.y_train, arrays["y_train"])
    assert "tiny is damaged and not used" in caplog.text
    assert "tiny cannot be kept" in caplog.text


def test_what_became_bad_between_storing_and_reading_is_not_used(tiny, arrays, given, monkeypatch):
    store = cache._store
    monkeypatch.setattr(cache, "_store", lambda *a: (store(*a), flip(cache_folder() / "tiny/y_train.npy")))
    np.testing.assert_array_equal(load("tiny").y_train, arrays["y_train"])


def test_links_in_the_cache_lead_nobody_outside(tiny, arrays, given, tmp_path):
    """A link where the cache would be is replaced, what it leads to stays as it was."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x_train.npy").write_bytes(b"somebody's")
    cache_folder().mkdir(parents=True)
    (cache_folder() / "tiny").symlink_to(outside)
    assert len(load("tiny").x_train) == 6
    assert (outside / "x_train.npy").read_bytes() == b"somebody's"
    assert [p.name for p in outside.iterdir()] == ["x_train.npy"]
    assert not (cache_folder() / "tiny").is_symlink()


def test_several_at_once_store_one_good_copy(tiny, arrays, caplog):
    found = []
    for _ in range(2):
        threads = [threading.Thread(target=lambda: found.append(cache.keep(tiny, arrays))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 16
    assert all(same(each, arrays) and isinstance(each["x_train"], np.memmap) for each in found)
    assert [p.name for p in cache_folder().iterdir()] == ["tiny"]
    assert not caplog.text


def test_who_comes_later_leaves_what_may_be_mapped(tiny, arrays):
    cache.keep(tiny, arrays)
    stored = cache_folder() / "tiny/x_train.npy"
    before = stored.stat().st_ino
    cache.keep(tiny, arrays)
    assert stored.stat().st_ino == before


def test_an_unreadable_cache_of_a_set_that_must_be_fetched_is_fetched(tiny, arrays, monkeypatch):
    from fedge.data import fetch

    cache.keep(tiny, arrays)
    (cache_folder() / f"tiny/{next(iter(IDX))}.npy").write_bytes(b"")
    monkeypatch.setitem(fetch.WAYS, "tiny", {"a registry": lambda attempt: arrays})
    assert len(load("tiny").x_train) == 6
    assert sources.where("tiny") == str(cache_folder() / "tiny")
