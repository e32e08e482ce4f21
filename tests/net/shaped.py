"""Machines on one machine: network namespaces, and links of a given speed between them (veth with token buckets).

It needs Linux, root, `ip` and `tc`. What it makes is called fedge-…, and is taken down again.
"""

import os
import shutil
import subprocess
import sys
from itertools import count

BURST = 16_000  # bytes that a token bucket lets through at once
WAITING = 0.05  # seconds of its rate that may wait in it; behind more, answers to what came the other way would wait
ETHERNET, IP_TCP, MTU = 14, 52, 1500  # bytes of headers in a packet that a bucket counts, and of a whole packet


def why_not():
    """Say why there can be no such network here, or nothing."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "links are shaped by root, on Linux"
    if missing := [name for name in ("ip", "tc") if shutil.which(name) is None]:
        return f"links are shaped with {missing[0]}, which is not installed"
    try:
        with Network() as network:
            network.connect("a", "b", 1e9)
    except subprocess.CalledProcessError as problem:
        return f"this kernel or container shapes no links ({problem.stderr.strip()})"
    return None


def on_wire(payload):
    """Return the bytes that so many bytes of a stream are on a link, with the headers of their packets."""
    return payload * (1 + (ETHERNET + IP_TCP) / (MTU - IP_TCP))


class Network:
    """These are namespaces and the links between them, until the block ends."""

    def __init__(self):
        self._prefix, self._spaces, self._links = f"fedge-{os.getpid()}", [], count()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in self._spaces:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
        self._spaces.clear()

    def namespace(self, machine):
        name = f"{self._prefix}-{machine}"
        if name not in self._spaces:
            _run("ip", "netns", "add", name)
            self._spaces.append(name)
            _run("ip", "-n", name, "link", "set", "lo", "up")
            _run("ip", "-n", name, "address", "add", f"{self.address(machine)}/32", "dev", "lo")
        return name

    def address(self, machine):
        """Return the address of a machine, which those linked to it reach over their link."""
        return f"10.202.0.{self._spaces.index(f'{self._prefix}-{machine}') + 1}"

    def connect(self, one, other, rate, back=None):
        """Link two machines, with a rate in bit/s from the first to the second and one back (None: not limited)."""
        number = next(self._links)
        spaces = [self.namespace(one), self.namespace(other)]
        devices = [f"l{number}a", f"l{number}b"]
        ends = [f"10.201.{number // 64}.{number % 64 * 4 + side}" for side in (1, 2)]
        _run("ip", "link", "add", devices[0], "netns", spaces[0], "type", "veth",
             "peer", "name", devices[1], "netns", spaces[1])  # fmt: skip
        there = zip(spaces, devices, ends, reversed(ends), (other, one), (rate, back), strict=True)
        for space, device, end, far_end, far, limit in there:
            _run("ip", "-n", space, "address", "add", f"{end}/30", "dev", device)
            _run("ip", "-n", space, "link", "set", device, "up")
            _run("ip", "-n", space, "route", "add", self.address(far), "via", far_end, "dev", device)
            if limit is not None:
                _run("tc", "-n", space, "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{limit:.0f}bit",
                     "burst", str(BURST), "limit", f"{max(2 * BURST, limit / 8 * WAITING):.0f}")  # fmt: skip

    def start(self, machine, *words, **options):
        """Start a process on a machine."""
        return subprocess.Popen(["ip", "netns", "exec", self.namespace(machine), *words], **options)


def _run(*words):
    subprocess.run(words, check=True, capture_output=True, text=True)
