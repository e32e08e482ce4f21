"""Fleets in tests have ports of their own."""

import contextlib
import itertools
import os
import socket

import pytest

PORTS = range(16_384, 32_768, 8)  # below those that systems give to whoever asks for any
WORKERS = 16
TURNS = itertools.count(os.getpid())


@pytest.fixture
def free_port():
    """Return the first of eight neighbouring ports of which none is taken now; no other worker has the same."""
    own = PORTS[int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % WORKERS :: WORKERS]
    return next(port for turn in TURNS if all(_free((port := own[turn % len(own)]) + n) for n in range(8)))


def _free(port):
    with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
        return True
    return False
