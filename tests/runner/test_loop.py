import json
import os
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

import fedge
from fedge.errors import ConfigError, RunError
from fedge.models import make
from tests.helpers import toy

KEYS = {"algorithm": "hierfavg", "clients": 6, "cells": 2, "rounds": 6, "batch": 5, "checkpoint_every": 2, "lr": 0.1}


def start(tmp_path, name="one", **keys):
    return fedge.run(KEYS | keys, out=tmp_path / name, dataset=toy())


def same_weights(a, b):
    one, two = load_file(a / "weights.safetensors"), load_file(b / "weights.safetensors")
    return one.keys() == two.keys() and all((one[p] == two[p]).all() for p in one)


def test_a_run_leaves_a_complete_record(tmp_path):
    result = start(tmp_path)
    folder = tmp_path / "one"
    assert {f.name for f in folder.iterdir()} == {
        "config.json", "run.json", "metrics.jsonl", "checkpoint.safetensors", "weights.safetensors", "result.json",
    }  # fmt: skip
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert rows == result.history == json.loads((folder / "result.json").read_text())["history"]
    assert [r["round"] for r in rows] == [1, 2, 3, 4, 5, 6]
    assert [r["iteration"] for r in rows] == [20, 40, 60, 80, 100, 120]
    assert set(rows[0]) == {"round", "iteration", "accuracy", "loss", "train_loss"}
    assert json.loads((folder / "config.json").read_text()) == result.config.model_dump()
    environment = json.loads((folder / "run.json").read_text())
    assert environment["seed"] == 0
    assert {"fedge", "jax", "python"} <= set(environment["versions"])
    saved = load_file(folder / "weights.safetensors")
    assert all((saved[p] == np.asarray(w)).all() for p, w in result.weights.items())
    assert set(result.to_json()) == {
        "algorithm", "config", "history", "final", "wall_seconds", "compile_seconds", "client_steps_per_second",
        "parameters", "out",
    }  # fmt: skip


def test_metrics_are_those_of_the_saved_model(tmp_path):
    """Accuracy and loss computed here, image by image, from the weights on disk."""
    result = start(tmp_path)
    data = toy()
    model = make("mlp", data.shape, data.classes)
    weights = load_file(tmp_path / "one/weights.safetensors")
    logits, _ = model(weights, (data.x_test / 255 - 0.5) / 0.5, train=False, key=jax.random.key(0))
    logits = np.asarray(logits, np.float64)
    right = (logits.argmax(1) == data.y_test).mean()
    likelihood = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    assert result.final["accuracy"] == pytest.approx(right, abs=1e-12)
    assert result.final["loss"] == pytest.approx(-likelihood[np.arange(31), data.y_test].mean(), rel=1e-4)


def test_learning_happens(tmp_path):
    """On the built-in data the loss falls by more than half of what chance gives (ln 10 = 2.30)."""
    result = fedge.run(algorithm="fedavg", rounds=6, lr=0.1, out=tmp_path / "real")
    assert result.final["accuracy"] > 0.6
    assert result.final["loss"] < 1.15


def test_eval_every_and_the_last_round(tmp_path):
    assert [r["round"] for r in start(tmp_path, eval_every=4).history] == [4, 6]


def test_float64_and_back(tmp_path):
    double = start(tmp_path, dtype="float64", rounds=1)
    assert {str(w.dtype) for w in double.weights.values()} == {"float64"}
    single = start(tmp_path, "two", rounds=1)
    assert {str(w.dtype) for w in single.weights.values()} == {"float32"}


@pytest.mark.parametrize("stop", [1, 3, 4])
def test_resume_after_an_interrupt(tmp_path, stop):
    """Stopped after any round, a run continues to the bits of an uninterrupted one."""
    whole = start(tmp_path, "whole")

    class Stop(fedge.runner.loop.Listener):
        def round(self, row, config):
            if row["round"] == stop:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedge.run(KEYS, out=tmp_path / "cut", dataset=toy(), listener=Stop())
    assert not (tmp_path / "cut/result.json").exists()
    resumed = fedge.run(resume=tmp_path / "cut", dataset=toy())
    assert resumed.history == whole.history
    assert same_weights(tmp_path / "whole", tmp_path / "cut")
    assert (tmp_path / "cut/metrics.jsonl").read_text() == (tmp_path / "whole/metrics.jsonl").read_text()


def test_resume_after_sigkill(tmp_path):
    """A real process, killed without warning between two checkpoints."""
    command = [sys.executable, "-m", "fedge.cli", "run"]
    keys = ["hierfavg", "rounds=40", "clients=8", "checkpoint_every=3", "devices=2", "batch=5", "--format", "json"]
    environment = os.environ | {"FEDGE_CACHE": str(tmp_path / "cache")}
    whole = subprocess.run(
        [*command, *keys, "--out", str(tmp_path / "whole")], env=environment, capture_output=True, text=True, check=True
    )
    process = subprocess.Popen([*command, *keys, "--out", str(tmp_path / "cut")], env=environment,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    metrics = tmp_path / "cut/metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text().count("\n") >= 5) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert metrics.read_text().count("\n") < 40, "the run was over before it could be killed"
    resumed = subprocess.run([*command, "--resume", str(tmp_path / "cut"), "--format", "json"], env=environment,
                             capture_output=True, text=True, check=True)  # fmt: skip
    assert json.loads(resumed.stdout)["history"] == json.loads(whole.stdout)["history"]
    assert same_weights(tmp_path / "whole", tmp_path / "cut")


def test_a_line_cut_short_by_a_crash_is_dropped(tmp_path):
    whole = start(tmp_path, "whole")
    start(tmp_path, "cut")
    metrics = tmp_path / "cut/metrics.jsonl"
    metrics.write_text(metrics.read_text()[:-20])
    (tmp_path / "cut/checkpoint.safetensors").unlink()
    assert fedge.run(resume=tmp_path / "cut", dataset=toy()).history == whole.history


def test_a_finished_run_resumes_to_itself(tmp_path):
    first = start(tmp_path)
    again = fedge.run(resume=tmp_path / "one", dataset=toy())
    assert again.history == first.history


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path):
    start(tmp_path)
    before = (tmp_path / "one/weights.safetensors").read_bytes()
    with pytest.raises(RunError, match="already holds a run; continue it with --resume"):
        start(tmp_path, seed=1)
    assert (tmp_path / "one/weights.safetensors").read_bytes() == before


def test_resume_refuses_what_it_cannot_continue(tmp_path):
    start(tmp_path)
    folder = tmp_path / "one"
    with pytest.raises(ConfigError, match="give resume alone"):
        fedge.run(KEYS, resume=folder)
    with pytest.raises(ConfigError, match="pass them again"):
        fedge.run(resume=folder)
    with pytest.raises(RunError, match="does not hold a run"):
        fedge.run(resume=tmp_path / "nothing")
    checkpoint = folder / "checkpoint.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    with pytest.raises(RunError, match=r"checkpoint.safetensors cannot be read"):
        fedge.run(resume=folder, dataset=toy())
    fedge.run(KEYS, out=tmp_path / "wide", dataset=toy((6, 6, 1)))
    checkpoint.write_bytes((tmp_path / "wide/checkpoint.safetensors").read_bytes())
    with pytest.raises(RunError, match="another model or algorithm"):
        fedge.run(resume=folder, dataset=toy())


def test_compare_shares_everything_but_the_algorithm(tmp_path):
    results = fedge.compare(out=tmp_path / "both", dataset=toy(), **{k: v for k, v in KEYS.items() if k != "algorithm"})
    assert list(results) == ["fedavg", "hierfavg"]
    one, two = (r.experiment for r in results.values())
    assert all((a == b).all() for a, b in zip(one.partition.samples, two.partition.samples, strict=True))
    assert all((np.asarray(one.start[p]) == np.asarray(two.start[p])).all() for p in one.start)
    assert (tmp_path / "both/fedavg/result.json").exists()
    with pytest.raises(ConfigError, match="not empty"):
        fedge.compare(out=tmp_path / "both", dataset=toy())
    with pytest.raises(ConfigError, match="unknown algorithm 'x'"):
        fedge.compare(["x"])
