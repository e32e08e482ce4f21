"""A fleet of real processes: killed in the middle it leaves no process behind, and goes on to the simulator's model."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import fedge
from fedge.experiment.fleet_file import fleet_of
from fedge.fleet.up import up
from tests.helpers import until

pytest.importorskip("grpc")
KEYS = {"algorithm": "hierfavg", "clients": 3, "cells": 1, "rounds": 15, "local_steps": 2, "edge_rounds": 1,
        "data": "fashion-mini", "checkpoint_every": 1, "devices": 1, "correction": "scaffold", "codec": "topk:0.1",
        "dtype": "float64"}  # fmt: skip
LONG = 240.0  # seconds for what takes a few, on a machine that is busy


def write_file(folder: Path, port: int) -> Path:
    rows = [f"{key} = {json.dumps(value)}" for key, value in KEYS.items()]
    file = folder / "tiny.toml"
    file.write_text("\n".join(["[run]", *rows, "[fleet]", f"port = {port}", "per_process = 3"]) + "\n")
    return file


def started(folder: Path, *words: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "fedge", "fleet", "up", *words], cwd=folder, stderr=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def those_of(folder: Path) -> list[int]:
    """Return the processes whose command line names this folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder).encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
        except OSError:  # it has just ended
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks for processes in /proc")
def test_a_fleet_that_is_killed_leaves_nobody_behind_and_goes_on_to_the_same_model(tmp_path, free_port):
    file, out = write_file(tmp_path, free_port), tmp_path / "run"
    assert subprocess.run([sys.executable, "-m", "fedge", "fleet", "init", str(file), "--out", str(tmp_path / "nodes")],
                          capture_output=True).returncode == 0  # fmt: skip
    words = (str(file), "--nodes", str(tmp_path / "nodes"))
    first = started(tmp_path, *words, "--out", str(out))
    until(lambda: (out / "checkpoint.safetensors").exists() or first.poll() is not None)
    assert len(those_of(tmp_path)) >= 1
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    until(lambda: not those_of(tmp_path))
    assert 0 < len((out / "metrics.jsonl").read_text().splitlines()) < KEYS["rounds"]  # there is something to resume

    again = started(tmp_path, *words, "--resume", str(out))
    said, problems = again.communicate(timeout=LONG)
    assert again.returncode == 0, problems
    assert not those_of(tmp_path)
    assert "client to edge" in said
    account = json.loads((out / "fleet.json").read_text())
    assert all(tier["predicted"] == tier["payload"] for tier in account["bytes"].values())
    simulated = fedge.run(KEYS, out=tmp_path / "simulated")
    assert close(load_file(out / "weights.safetensors"), simulated)


@pytest.mark.parametrize("own", [{"algorithm": "sdfeel", "cells": 2}, {"algorithm": "hiersfl", "cells": 1}])
def test_processes_without_a_cloud_or_with_halves_of_a_model_end_with_the_simulators(
    tmp_path, free_port, own, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # children's command lines name the folders made for them
    seen = set()
    keys = {"clients": 2, "rounds": 2, "local_steps": 2, "edge_rounds": 1, "data": "fashion-mini", "devices": 1} | own
    fleet = fleet_of({"run": keys, "fleet": {"port": free_port, "per_process": 2}}, "tiny")
    result, account = up(fleet, out=tmp_path / "run", told=lambda leader: looking(leader, seen, tmp_path))
    assert len(seen) == len(fleet.nodes) - (own["algorithm"] != "sdfeel")  # all but who leads
    assert not those_of(tmp_path)
    assert not list(tmp_path.glob("fedge-*"))
    assert account.agrees
    assert close(load_file(result.out / "weights.safetensors"), fedge.run(keys, out=tmp_path / "simulated"))


def looking(leader, seen, folder) -> None:
    """Let a leader look for processes after each round."""
    leader.told = lambda index: seen.update(those_of(folder))


def close(weights, simulated) -> bool:
    return max(float(np.abs(weights[path] - np.asarray(w)).max()) for path, w in simulated.weights.items()) < 1e-6
