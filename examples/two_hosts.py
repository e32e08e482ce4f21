"""Several hosts: the same command once per process, here two processes of one machine.

    .venv/bin/python examples/two_hosts.py

On two machines it is, with the first one's address,

    fedge run sdfeel clients=8 cells=4 --out runs/two --hosts 0/2@10.0.0.1:9876      # on the first
    fedge run sdfeel clients=8 cells=4 --out runs/two --hosts 1/2@10.0.0.1:9876      # on the second

and under SLURM or Kubernetes `--hosts auto` (docs/hosts.md). One process with two devices ends with the same bits.
"""

import socket
import subprocess
import sys

import fedge

KEYS = {"clients": 8, "cells": 4, "rounds": 2, "local_steps": 2, "edge_rounds": 2, "batch": 5, "devices": 2}


def start(who: str) -> subprocess.Popen:
    words = ["sdfeel", *(f"{key}={value}" for key, value in KEYS.items()), "--draw", "none", "--out", "runs/two"]
    command = [sys.executable, "-m", "fedge", "run", *words, "--hosts", who]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def main() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    together = [start(f"{i}/2@{place}") for i in (0, 1)]
    assert [process.wait() for process in together] == [0, 0]
    two, one = fedge.load("runs/two"), fedge.run(KEYS, algorithm="sdfeel", out="runs/one")
    same = sum(int((two.weights[path] == one.weights[path]).sum()) for path in one.weights)
    print(f"{same / one.parameters:.0%} of {one.parameters:,} weights are the same, bit for bit")


if __name__ == "__main__":
    main()
