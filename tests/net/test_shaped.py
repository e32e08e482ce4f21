"""A transfer over a link takes as long as its bytes at its rate, which is what `cost.clock` reckons with."""

import subprocess
import sys

import pytest

from fedge.net.identity import Authority
from fedge.net.names import CLOUD, client
from tests.net.shaped import Network, on_wire, why_not

grpc = pytest.importorskip("grpc")
PEER = [sys.executable, "-m", "tests.net.shaped_peer"]


def test_a_transfer_takes_its_bytes_over_its_rate(tmp_path, capsys):
    if (why := why_not()) is not None:
        with capsys.disabled():
            print(f"\nNOT TESTED: {why}")
        pytest.skip(why)
    rate, size = 40e6, 8_000_000
    authority = Authority.create("shaped")
    for name in (CLOUD, client(0)):
        authority.issue(name).save(tmp_path / str(name))
    with Network() as network:
        network.connect("client", "cloud", rate)
        there = f"{network.address('cloud')}:7400"
        server = network.start("cloud", *PEER, "serve", there, str(tmp_path / "cloud"), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)  # fmt: skip
        try:
            assert server.stdout.readline() == "ready\n"
            sender = network.start("client", *PEER, "send", there, str(tmp_path / "client-0"), str(size),
                                   stdout=subprocess.PIPE, text=True)  # fmt: skip
            said, _ = sender.communicate(timeout=120)
        finally:
            server.communicate("", timeout=60)
    rows = [row.split() for row in said.splitlines()]
    assert [int(taken) for _, taken in rows] == [size] * 3
    predicted, measured = 8 * size / rate, min(float(seconds) for seconds, _ in rows)  # others are at work here too
    with capsys.disabled():
        print(f"\n{size:,} bytes at {rate / 1e6:g} Mbit/s: predicted {predicted:.3f} s "
              f"({8 * on_wire(size) / rate:.3f} s with headers), measured {measured:.3f} s")  # fmt: skip
    assert abs(measured - predicted) <= 0.15 * predicted
