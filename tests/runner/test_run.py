import json
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import optax
import pytest
from flax import nnx
from safetensors.numpy import load_file

import fedge
from fedge.errors import ConfigError, DivergenceError, RunError
from fedge.models import from_nnx, make
from fedge.runner.run import default_folder
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
        "config.json", "run.json", "metrics.jsonl", "checkpoint.safetensors", "checkpoint.previous.safetensors",
        "weights.safetensors", "result.json", "ledger.json", "setting.json", ".lock",
    }  # fmt: skip
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert rows == result.history == json.loads((folder / "result.json").read_text())["history"]
    assert [r["round"] for r in rows] == [1, 2, 3, 4, 5, 6]
    assert [r["iteration"] for r in rows] == [20, 40, 60, 80, 100, 120]
    assert set(rows[0]) == {
        "round", "iteration", "accuracy", "loss", "train_loss", "bytes", "simulated_seconds",
    }  # fmt: skip
    assert (
        json.loads((folder / "ledger.json").read_text())["edge_to_cloud"]["total"] == rows[-1]["bytes"]["edge_to_cloud"]
    )
    assert json.loads((folder / "config.json").read_text()) == result.config.model_dump()
    environment = json.loads((folder / "run.json").read_text())
    assert environment["seed"] == 0
    assert {"fedge", "jax", "python"} <= set(environment["versions"])
    saved = load_file(folder / "weights.safetensors")
    assert all((saved[p] == np.asarray(w)).all() for p, w in result.weights.items())
    assert set(result.to_json()) == {
        "algorithm", "config", "history", "final", "wall_seconds", "compile_seconds", "client_steps_per_second",
        "parameters", "out", "diverged", "stopped", "reached",
    }  # fmt: skip


def test_links_and_waits_are_told_with_each_checkpoint(tmp_path):
    class Reader(fedge.Listener):
        def __init__(self):
            self.sent, self.told = [], []

        def tested(self, row, config):
            place = tmp_path / "one/ledger.json"
            self.sent.append(sum(row["bytes"].values()))
            self.told.append(json.loads(place.read_text()) if place.exists() else None)

    reader = Reader()
    fedge.run(KEYS, out=tmp_path / "one", dataset=toy(), listener=reader, device_spread=1.0)
    assert reader.told[:2] == [None, None]
    tiers = [[tier for tier in told.values() if isinstance(tier, dict)] for told in reader.told[2:]]
    totals = [sum(tier["total"] for tier in each if "total" in tier) for each in tiers]
    assert [told["round"] for told in reader.told[2:]] == [2, 2, 4, 4]
    assert totals == [reader.sent[1], reader.sent[1], reader.sent[3], reader.sent[3]]  # checkpoint_every=2
    busy = [told["waiting"]["each_client"]["busy"][0] for told in reader.told[2:]]
    assert 0 < busy[0] == busy[1] < busy[2]


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

    class Stop(fedge.Listener):
        def tested(self, row, config):
            if row["round"] == stop:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedge.run(KEYS, out=tmp_path / "cut", dataset=toy(), listener=Stop())
    assert not (tmp_path / "cut/result.json").exists()
    resumed = fedge.run(resume=tmp_path / "cut", dataset=toy())
    assert resumed.history == whole.history
    assert same_weights(tmp_path / "whole", tmp_path / "cut")
    assert (tmp_path / "cut/metrics.jsonl").read_text() == (tmp_path / "whole/metrics.jsonl").read_text()


def test_a_line_cut_short_by_a_crash_is_dropped(tmp_path):
    whole = start(tmp_path, "whole")
    start(tmp_path, "cut")
    metrics = tmp_path / "cut/metrics.jsonl"
    metrics.write_text(metrics.read_text()[:-20])
    for checkpoint in (tmp_path / "cut").glob("checkpoint*"):
        checkpoint.unlink()
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


def test_a_strangers_checkpoint_is_not_continued(tmp_path):
    start(tmp_path)
    (tmp_path / "two").mkdir()
    (tmp_path / "two/checkpoint.safetensors").write_bytes((tmp_path / "one/checkpoint.safetensors").read_bytes())
    with pytest.raises(RunError, match="is not empty; choose another --out"):
        start(tmp_path, "two")


def test_a_finished_run_keeps_its_record(tmp_path):
    start(tmp_path)
    before = (tmp_path / "one/result.json").read_bytes()
    again = fedge.run(resume=tmp_path / "one", dataset=toy())
    assert (tmp_path / "one/result.json").read_bytes() == before
    assert again.client_steps_per_second > 0
    (tmp_path / "one/metrics.jsonl").unlink()
    with pytest.raises(RunError, match=r"metrics.jsonl is not as it was written up to round 6"):
        fedge.run(resume=tmp_path / "one", dataset=toy())


def test_runs_that_start_in_the_same_second_get_a_folder_each(tmp_path, monkeypatch):
    """As a shell loop over seeds starts them: between finding a name free and taking it another could take it."""
    monkeypatch.chdir(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(default_folder, ["hist"] * 40))
    assert len(set(folders)) == 40
    assert all(folder.is_dir() for folder in folders)
    (tmp_path / "file").touch()
    (tmp_path / "runs").rename(tmp_path / "before")
    (tmp_path / "runs").symlink_to("file")
    with pytest.raises(RunError, match="cannot write to runs: File exists; choose another place with --out"):
        default_folder("hist")


def test_the_record_names_the_layout_and_the_configuration_what_was_asked_for(tmp_path):
    config = start(tmp_path, rounds=1).config
    assert (config.devices, config.chunk) == (0, 0)
    about = json.loads((tmp_path / "one/run.json").read_text())
    assert about["layout"] == {"devices": 2, "chunk": 1}
    assert (about["state"], about["config"]) == ("finished", config.model_dump())
    assert about["begun"] <= about["ended"]


def test_divergence_ends_a_run_with_its_last_good_state(tmp_path):
    """With one hidden layer and a rate of 300 the loss grows for two rounds before it overflows."""
    with pytest.raises(
        DivergenceError, match=r"hierfavg diverged in round \d: its loss .* lower lr \(now 1e\+30\)"
    ) as caught:
        start(tmp_path, lr=1e30)
    folder, result = tmp_path / "one", caught.value.result
    assert result.diverged
    assert result.final["loss"] is None
    stored = json.loads((folder / "result.json").read_text(), parse_constant=pytest.fail)
    assert stored["diverged"] is True
    assert json.loads((folder / "run.json").read_text())["state"] == "diverged"
    assert all(np.isfinite(w).all() for w in load_file(folder / "weights.safetensors").values())
    before = (folder / "run.json").read_bytes()
    with pytest.raises(DivergenceError, match=r"the run in .* diverged; the likely cause"):
        fedge.run(resume=folder, dataset=toy())
    assert (folder / "run.json").read_bytes() == before


def test_divergence_by_data_is_not_answered_with_lower_lr(tmp_path):
    data = toy()
    images = data.x_train.astype(np.float32) / 255
    broken = fedge.Dataset.of(images, data.y_train, data.x_test / np.float32(255), data.y_test)
    broken.x_train[3, 2, 2, 0] = np.nan  # after it was checked
    with pytest.raises(DivergenceError, match="training images hold values that are not finite") as caught:
        fedge.run(KEYS, out=tmp_path / "x", dataset=broken)
    assert "lower lr" not in str(caught.value)


def test_an_optimiser_of_ones_own_is_needed_again(tmp_path):
    result = fedge.run(KEYS, out=tmp_path / "adam", dataset=toy(), optimiser=optax.adam)
    assert result.config.optimizer == "custom"
    with pytest.raises(ConfigError, match="optimizer=custom means an object passed in from Python"):
        fedge.run(resume=tmp_path / "adam", dataset=toy())
    other = toy()
    other.y_train[:] = 0
    with pytest.raises(RunError, match=r"not the one .* was begun with"):
        fedge.run(resume=tmp_path / "adam", dataset=other, optimiser=optax.adam)


@pytest.mark.parametrize(("shape", "model", "match"), [((7,), "cnn", "needs images"), ((5, 5, 1), "short", "classes")])
def test_models_that_do_not_fit_the_data(tmp_path, shape, model, match):
    if model == "short":
        model = fedge.from_nnx(lambda rngs: nnx.Linear(1, 2, rngs=rngs), input_shape=shape, classes=4)
    with pytest.raises(ConfigError, match=match):
        fedge.run(KEYS, out=tmp_path / "x", dataset=toy(shape), model=model)
    assert not (tmp_path / "x").exists()


def test_resume_refuses_what_it_cannot_continue(tmp_path):
    start(tmp_path)
    folder = tmp_path / "one"
    with pytest.raises(ConfigError, match="give resume alone"):
        fedge.run(KEYS, resume=folder)
    with pytest.raises(ConfigError, match="data=custom means an object passed in"):
        fedge.run(resume=folder)
    with pytest.raises(RunError, match="does not hold a run"):
        fedge.run(resume=tmp_path / "nothing")
    with pytest.raises(ConfigError, match="a resumed run keeps its own lr; only rounds, budget_seconds"):
        fedge.run(resume=folder, lr=0.2)
    with pytest.raises(RunError, match="holds 6 rounds, more than the run is to have"):
        fedge.run(resume=folder, dataset=toy(), rounds=3)


def test_compare_shares_everything_but_the_algorithm(tmp_path):
    results = fedge.compare(out=tmp_path / "both", dataset=toy(), **{k: v for k, v in KEYS.items() if k != "algorithm"})
    assert {"fedavg", "hierfavg", "hist", "hiersfl", "sdfeel"} <= set(results)
    one, two, *_ = (r.experiment for r in results.values())
    assert all((a == b).all() for a, b in zip(one.partition.samples, two.partition.samples, strict=True))
    assert all((np.asarray(one.start[p]) == np.asarray(two.start[p])).all() for p in one.start)
    assert (tmp_path / "both/fedavg/result.json").exists()
    with pytest.raises(RunError, match="already holds a run"):
        fedge.compare(["fedavg"], out=tmp_path / "both", dataset=toy(), clients=6, cells=2)
    with pytest.raises(ConfigError, match=r"hist: 11 submodels cannot share the 10 units of 'conv1'.*or name"):
        fedge.compare(out=tmp_path / "new", dataset=toy((16, 16, 1)), model="cnn", clients=11, cells=11)
    assert not (tmp_path / "new").exists()
    with pytest.raises(ConfigError, match="unknown algorithm 'x'"):
        fedge.compare(["x"])


def test_a_stopped_comparison_can_be_finished(tmp_path):
    keys = {k: v for k, v in KEYS.items() if k != "algorithm"}
    whole = fedge.compare(["fedavg", "hierfavg"], out=tmp_path / "whole", dataset=toy(), **keys)

    class Stop(fedge.Listener):
        def tested(self, row, config):
            if config.algorithm == "hierfavg" and row["round"] == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedge.compare(["fedavg", "hierfavg"], out=tmp_path / "cut", dataset=toy(), listener=Stop(), **keys)
    resumed = fedge.compare(resume=tmp_path / "cut", dataset=toy())
    assert {n: r.history for n, r in resumed.items()} == {n: r.history for n, r in whole.items()}


def test_sdfeel_records_its_edges(tmp_path):
    """Edge models' accuracy and their disagreement, which is what is computed here from the checkpoint."""
    result = start(tmp_path, algorithm="sdfeel", cells=3, graph="path")
    row = result.final
    assert {"edge_accuracy", "consensus"} <= set(row)
    edges = load_file(tmp_path / "one/checkpoint.safetensors")
    m = result.experiment.topology.cell_weight
    apart = 0.0
    for w in edges.values():
        u = np.tensordot(m, w.astype(float), 1)
        apart += sum(m[d] * ((w[d] - u) ** 2).sum() for d in range(3))
    assert row["consensus"] == pytest.approx(apart, rel=1e-6)
    assert "edge_to_cloud" not in row["bytes"]
    complete = start(tmp_path, "two", algorithm="sdfeel", cells=3, graph="complete", mixing="mean")
    assert complete.final["consensus"] < 1e-9
    assert complete.final["edge_accuracy"] == pytest.approx(complete.final["accuracy"])


def test_a_budget_stops_a_run_and_survives_a_resume(tmp_path):
    limit = start(tmp_path).history[2]["simulated_seconds"]
    keys = {k: v for k, v in KEYS.items() if k != "rounds"}
    result = fedge.run(keys, out=tmp_path / "short", dataset=toy(), budget_seconds=limit)
    assert result.final["round"] == len(result.history) == 3
    assert fedge.run(resume=tmp_path / "short", dataset=toy()).history == result.history


def test_global_loss_is_the_mean_over_all_training_samples(tmp_path):
    result = start(tmp_path, train_eval=True)
    data = toy()
    model = make("mlp", data.shape, data.classes)
    logits, _ = model(result.weights, (data.x_train / 255 - 0.5) / 0.5, train=False, key=jax.random.key(0))
    logits = np.asarray(logits, np.float64)
    losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(90), data.y_train]
    assert result.final["global_loss"] == pytest.approx(losses.mean(), rel=1e-4)


def test_edge_models_are_calibrated_where_statistics_stay_local(tmp_path):
    """bn=local keeps no statistics that could travel, so an edge's model gets its own estimate before it is tested."""

    class Normed(nnx.Module):
        def __init__(self, rngs):
            self.fc1, self.bn = nnx.Linear(25, 8, rngs=rngs), nnx.BatchNorm(8, rngs=rngs)
            self.fc2 = nnx.Linear(8, 4, rngs=rngs)

        def __call__(self, x):
            return self.fc2(nnx.relu(self.bn(self.fc1(x.reshape(len(x), -1)))))

    model = from_nnx(Normed, input_shape=(5, 5, 1), classes=4, statistics="local")
    keys = {"algorithm": "sdfeel", "cells": 3, "graph": "path", "partition": "iid", "clients": 6, "rounds": 1}
    result = fedge.run(keys, dataset=toy(), model=model, out=tmp_path / "run", batch=4)
    made = result.experiment
    edges = made.calibrated(made.job.algorithm.edges(made.start))
    assert edges["bn/var"].shape == (3, 8)
    assert float(edges["bn/var"].min()) > 0
    assert len(result.final["edge_accuracies"]) == 3
    assert np.mean(result.final["edge_accuracies"]) == pytest.approx(result.final["edge_accuracy"])
