"""One run by two processes on loopback is, bit for bit, the run of one process with as many devices."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest

import fedge
from fedge.errors import ConfigError
from fedge.experiment.config import parse
from fedge.runner import device

EXAMPLE = Path(__file__).parents[2] / "examples/two_hosts.py"
KEYS = ["clients=6", "cells=3", "local_steps=2", "edge_rounds=2", "batch=5", "devices=2"]


# The command without its pictures, which take a process longer than the run.
COMMAND = "import fedge.cli.run; fedge.cli.run.figures = lambda *_: []; fedge.cli.main()"


def start(words, who=None):
    command = [sys.executable, "-c", COMMAND, "run", *words, *(["--hosts", who] if who else [])]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def both(words):
    """Start the processes of a run by two; the leader comes first."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    return [start(words, f"{i}/2@{place}") for i in (0, 1)]


def alone(words, folder):
    """Make the same run by this process, which has two devices too."""
    fedge.run(dict(parse([f"algorithm={words[0]}", *words[1:]])), out=folder)
    return folder


def finished(*processes):
    out = [p.communicate(timeout=300) for p in processes]
    assert [p.returncode for p in processes] == [0] * len(processes), out
    return out


@pytest.mark.parametrize(
    "words",
    [
        ["hist", "train_eval=true", "partition=dirichlet", *KEYS],
        ["hiersfl", "cut=hidden", "participation=0.5", *KEYS],
    ],
    ids=lambda words: words[0],
)
def test_two_processes_are_one_run(tmp_path, words):
    whole, together = alone([*words, "rounds=2"], tmp_path / "alone"), tmp_path / "together"
    (lead, _), (follower, _) = finished(*both([*words, "rounds=2", "--out", str(together), "--format", "json"]))
    assert json.loads(lead)["out"] == str(together)
    assert follower == ""
    for name in ("metrics.jsonl", "weights.safetensors"):
        assert (together / name).read_bytes() == (whole / name).read_bytes(), name
    assert len((whole / "metrics.jsonl").read_text().splitlines()) == 2


def test_the_example_is_one_run_too(tmp_path):
    """It is SD-FEEL's, and its two devices have two whole cells each."""
    done = subprocess.run([sys.executable, EXAMPLE], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("100% of ")
    for name in ("metrics.jsonl", "weights.safetensors"):
        assert (tmp_path / "runs/two" / name).read_bytes() == (tmp_path / "runs/one" / name).read_bytes(), name


def test_a_lost_process_stops_the_run_which_then_goes_on(tmp_path):
    together = tmp_path / "together"
    words = ["hierfavg", *KEYS, "local_steps=40", "rounds=18", "eval_every=6", "checkpoint_every=2"]
    words.remove("local_steps=2")
    lead, follower = both([*words, "--out", str(together)])
    deadline = time.monotonic() + 120
    while not (together / "checkpoint.safetensors").exists():
        assert time.monotonic() < deadline
        assert lead.poll() is None
        time.sleep(0.01)
    os.kill(follower.pid, signal.SIGKILL)
    _, complaint = lead.communicate(timeout=300)
    follower.communicate()
    assert lead.returncode == 4
    assert "another process was lost" in complaint
    assert f"--resume {together}" in complaint
    finished(*both(["--resume", str(together)]))
    whole = alone(words, tmp_path / "alone")
    assert (together / "weights.safetensors").read_bytes() == (whole / "weights.safetensors").read_bytes()


def test_processes_that_were_told_different_things(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    pair = [start(["fedavg", *KEYS, "rounds=1", f"seed={i}", "--out", str(tmp_path / "r")], f"{i}/2@{place}")
            for i in (0, 1)]  # fmt: skip
    complaints = [p.communicate(timeout=300)[1] for p in pair]
    assert any("different words, data, checkpoints or code" in c for c in complaints), complaints
    assert 0 not in [p.returncode for p in pair]


@pytest.mark.parametrize("hosts", ["2/2@127.0.0.1:1", "0/2", "x", "", "0/2@nowhere", "0/2@here:0", "0/2@here:99999",
                                   "0/9999999@here:1", "0/²@here:1"])  # fmt: skip
def test_hosts_that_cannot_be(hosts):
    with pytest.raises(ConfigError, match=f"hosts={hosts} is not allowed"):
        device.prepare(0, hosts)


def test_compiled_programs_are_kept_where_nobody_else_can_put_any(tmp_path, monkeypatch, caplog):
    """They are run as they are found."""
    kept = []
    monkeypatch.setattr(jax.config, "update", lambda name, value: kept.append(value))
    device._keep_programs(tmp_path / "new/compiled")
    assert kept == [str(tmp_path / "new/compiled"), 0.1]
    assert (tmp_path / "new/compiled").stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").touch()
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for place in ("file/compiled", "open"):
        device._keep_programs(tmp_path / place)
    assert len(kept) == 2
    assert "file/compiled: Not a directory" in caplog.text
    assert "open: others can write there" in caplog.text


def test_devices_that_cannot_be_shared_out():
    with pytest.raises(ConfigError, match="devices=3 cannot be shared out evenly"):
        device.prepare(3, "0/2@127.0.0.1:1")
