"""Whatever a file is made to hold, reading it gives one sentence, or the right arrays."""

import gzip
import io
import struct
import tarfile
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.data import cache, formats
from fedge.data.formats import IDX, read_cifar_folder, read_idx, read_idx_folder, unpack
from fedge.data.known import verify
from fedge.errors import DataError
from tests.data.conftest import few, idx, put_cifar, put_idx, source_of

ARRAYS = few((4, 3, 1), (6, 5))
TINY = source_of(ARRAYS)
CIFAR = few((32, 32, 3), (5, 1))
TINY_CIFAR = source_of(CIFAR, "cifar10")

HEADERS = st.one_of(
    st.binary(max_size=16),
    st.builds(
        lambda kind, sizes: struct.pack(f">HBB{len(sizes)}I", 0, kind, len(sizes), *sizes),
        st.sampled_from([0, 8, 9, 13, 255]),
        st.lists(st.sampled_from([0, 1, 3, 4, 5, 6, 12, 2**16, 2**31, 2**32 - 1]), max_size=5),
    ),
)
DAMAGE = st.one_of(
    st.tuples(st.just("cut"), st.floats(0, 1, exclude_max=True)),
    st.tuples(st.just("flip"), st.floats(0, 1, exclude_max=True), st.integers(0, 7)),
    st.tuples(st.just("begin"), HEADERS),
    st.tuples(st.just("end"), st.binary(min_size=1, max_size=20)),
)


def damaged(raw, damage):
    how, *values = damage
    if how == "cut":
        return raw[: int(values[0] * len(raw))]
    if how == "flip":
        place = int(values[0] * len(raw))
        return raw[:place] + bytes([raw[place] ^ (1 << values[1])]) + raw[place + 1 :]
    return values[0] + raw[len(values[0]) :] if how == "begin" else raw + values[0]


def right_or_refused(source, read, arrays):
    try:
        found = verify(source, read(), "here")
    except DataError:
        return
    for key, array in arrays.items():
        np.testing.assert_array_equal(found[key], array)


@given(st.sampled_from(sorted(IDX)), DAMAGE, st.sampled_from(["plain", "packed", "inside"]))
@settings(max_examples=150)
def test_any_damage_to_an_idx_file(key, damage, where):
    with tempfile.TemporaryDirectory() as place:
        folder = put_idx(Path(place) / "tiny", ARRAYS, packed=where != "plain")
        path = folder / (IDX[key] if where == "plain" else f"{IDX[key]}.gz")
        if where == "inside":
            path.write_bytes(gzip.compress(damaged(idx(ARRAYS[key]), damage)))
        else:
            path.write_bytes(damaged(path.read_bytes(), damage))
        right_or_refused(TINY, lambda: read_idx_folder(folder, TINY.shapes), ARRAYS)


@given(st.sampled_from(sorted(IDX)), DAMAGE)
@settings(max_examples=60)
def test_any_damage_to_a_cached_file(key, damage):
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDGE_CACHE", place)
        cache.keep(TINY, ARRAYS)
        path = cache.cache_folder() / f"tiny/{key}.npy"
        path.write_bytes(damaged(path.read_bytes(), damage))
        found = cache.read(TINY)
        assert found is None or all(np.array_equal(found[key], ARRAYS[key]) for key in ARRAYS)


def cifar_archive(place):
    put_cifar(place / "bins", CIFAR)
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        archive.add(place / "bins", formats.CIFAR_FOLDER)
    return written.getvalue()


@given(DAMAGE, st.sampled_from(["file", "packed", "inside", "header"]))
@settings(max_examples=100)
def test_any_damage_to_cifar(damage, where):
    with tempfile.TemporaryDirectory() as place:
        raw = cifar_archive(Path(place))
        if where == "file":
            folder = Path(place) / "bins"
            path = folder / "data_batch_3.bin"
            path.write_bytes(damaged(path.read_bytes(), damage))
        else:
            folder, path = Path(place), Path(place) / formats.CIFAR_ARCHIVE
            if where == "header":  # of the folder and of the first file: the places where a tar file says something
                raw = damaged(raw[:1024], damage) + raw[1024:]
            path.write_bytes(gzip.compress(damaged(raw, damage) if where == "inside" else raw, 1))
            if where == "packed":
                path.write_bytes(damaged(path.read_bytes(), damage))
        right_or_refused(TINY_CIFAR, lambda: read_cifar_folder(folder, TINY_CIFAR.shapes), CIFAR)


@pytest.mark.parametrize(
    "sizes", [(3, 8, 3), (6, 12), (72,), (), (6, 4, 3, 1), (2**32 - 1,) * 200, (2**31, 2**31, 4), (6, 4, 3, 0)], ids=len
)
def test_a_header_of_another_shape_is_refused(tmp_path, sizes):
    path = tmp_path / IDX["x_train"]
    path.write_bytes(struct.pack(f">HBB{len(sizes)}I", 0, 8, len(sizes), *sizes) + ARRAYS["x_train"].tobytes())
    with pytest.raises(DataError, match="damaged"):
        read_idx(path, (6, 4, 3, 1))


@pytest.mark.parametrize("packed", [True, False])
def test_an_idx_file_that_never_ends_is_not_read_to_its_end(tmp_path, packed):
    path = tmp_path / (IDX["y_train"] + (".gz" if packed else ""))
    raw = idx(ARRAYS["y_train"]) + bytes(2**25)
    path.write_bytes(gzip.compress(raw) if packed else raw)
    tracemalloc.start()
    with pytest.raises(DataError, match=r"larger than|more than"):
        read_idx(path, (6,))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20


def test_a_packed_file_of_many_empty_parts_is_not_read(tmp_path):
    path = tmp_path / (IDX["y_train"] + ".gz")
    path.write_bytes(gzip.compress(b"") * 5000 + gzip.compress(idx(ARRAYS["y_train"])))
    with pytest.raises(DataError, match="larger than"):
        read_idx(path, (6,))


def bomb(kind):
    """Write a tar file that would take a long time, much memory or much room on a disk."""
    member = tarfile.TarInfo("wanted")
    written = io.BytesIO()
    if kind in ("large", "large and wanted"):
        member = tarfile.TarInfo("wanted" if "wanted" in kind else "other")
        member.size = 2**25
        with tarfile.open(fileobj=written, mode="w") as archive:
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    elif kind == "many":
        return tarfile.TarInfo("other").tobuf() * 2**15
    else:
        member.size, member.type = 2**60, kind
        written.write(member.tobuf(tarfile.GNU_FORMAT))
    return written.getvalue()


KINDS = ["large", "large and wanted", "many", tarfile.REGTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_SPARSE,
         tarfile.XHDTYPE, tarfile.XGLTYPE, b"Z"]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_an_archive_that_goes_on_is_given_up(tmp_path, kind):
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(bomb(kind), 1))
    (tmp_path / "out").mkdir()
    begin = time.process_time()
    with pytest.raises(DataError, match="damaged"):
        unpack(tmp_path / "a.tar.gz", ["wanted"], tmp_path / "out", TINY.shapes)
    assert time.process_time() - begin < 10
    assert sum(path.stat().st_size for path in (tmp_path / "out").iterdir()) <= 2**23


def test_a_member_with_holes_is_not_unpacked(tmp_path):
    """It would fill the disk with zeros that are nowhere in the archive."""
    member = tarfile.TarInfo("wanted")
    member.type = tarfile.GNUTYPE_SPARSE
    raw = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    raw[483:495] = b"%011o\0" % 2**26
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    (tmp_path / "a.tgz").write_bytes(gzip.compress(bytes(raw) + bytes(1024)))
    with tarfile.open(tmp_path / "a.tgz") as archive:
        assert archive.getmember("wanted").size == 2**26
    (tmp_path / "out").mkdir()
    unpack(tmp_path / "a.tgz", ["wanted"], tmp_path / "out", TINY.shapes)
    assert not list((tmp_path / "out").iterdir())


def test_members_that_lead_outside_are_not_unpacked(tmp_path):
    """A link of a wanted name, and files through it, above the folder and at the root."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as archive:
        link = tarfile.TarInfo("package/wanted")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "outside")
        archive.addfile(link)
        for name in ("package/wanted", "../outside", f"{tmp_path}/outside", "package/../../outside"):
            member = tarfile.TarInfo(name)
            member.size = 5
            archive.addfile(member, io.BytesIO(b"hello"))
    (tmp_path / "a.tgz").write_bytes(written.getvalue())
    (tmp_path / "out").mkdir()
    unpack(tmp_path / "a.tgz", ["package/wanted"], tmp_path / "out", TINY.shapes)
    assert not (tmp_path / "out/wanted").is_symlink()
    assert (tmp_path / "out/wanted").read_bytes() == b"hello"
    assert not (tmp_path / "outside").exists()
