"""Fleets in tests have ports of their own."""

import socket

import pytest


@pytest.fixture
def free_port():
    """Return the first of several neighbouring ports of which none is taken now."""
    while True:
        with socket.socket() as first:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            if port < 65_000 and all(_free(port + n) for n in range(1, 8)):
                return port


def _free(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) != 0
