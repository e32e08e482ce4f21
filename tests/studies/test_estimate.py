"""Theory beside practice: constants measured along a run are those known, and a bound's worth is said plainly."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from flax import nnx
from typer.testing import CliRunner

import fedge
from fedge.cli import app
from fedge.errors import ConfigError, RunError
from fedge.experiment.build import experiment
from fedge.experiment.config import Config
from fedge.studies.estimate import estimate, uncovered
from fedge.theory.bound import bound
from fedge.theory.constants import bounds, verdict
from fedge.view.theory import constants_table
from tests.helpers import toy

KEYS = {
    "partition": "iid",
    "clients": 4,
    "cells": 2,
    "rounds": 3,
    "local_steps": 2,
    "edge_rounds": 1,
    "batch": 5,
    "devices": 1,
}


def call(*words):
    return CliRunner().invoke(app, ["theory", "estimate", *map(str, words)])


class Linear(nnx.Module):
    def __init__(self, rngs):
        self.map = nnx.Linear(3, 1, use_bias=False, rngs=rngs, param_dtype=float)

    def __call__(self, x):
        return self.map(x.reshape(len(x), -1))


def quadratics():
    """Least squares: F_i(w) = mean_s (x_s·w − y_s)² is a quadratic, of which everything is known."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(48, 3, 1, 1))
    y = x.reshape(48, 3) @ [1.0, -2.0, 0.5] + rng.normal(size=48)
    data = fedge.Dataset.of(x[:40], y[:40], x[40:], y[40:], scale=((0.0,), (1.0,)), task="regression")
    owner = np.repeat(np.arange(4), [7, 13, 8, 12])
    model = fedge.from_nnx(Linear, input_shape=(3, 1, 1), classes=1)
    return data, model, owner


def test_constants_along_a_run_are_those_of_its_quadratics():
    """L is the same at every model; the others are, at the first and the last model, what numpy makes of them."""
    data, model, owner = quadratics()
    keys = KEYS | {"algorithm": "hierfavg", "lr": 0.02, "dtype": "float64", "task": "regression"}
    objects = {"dataset": data, "model": model}
    with jax.enable_x64(True):
        run = fedge.run(keys | {"partition": owner}, **objects)
        found = estimate(keys | {"partition": owner}, probes=3, **objects)
    m = found.measurements
    assert list(m.rounds) == [0, 2, 3]
    x, y = np.asarray(data.x_train, float).reshape(40, 3), np.asarray(data.y_train, float).reshape(-1)
    own = [(x[owner == i], y[owner == i]) for i in range(4)]
    curvature = max(np.linalg.eigvalsh(2 * a.T @ a / len(a))[-1] for a, _ in own)
    smooth = found.constants[0]
    assert smooth.symbol == "L"
    for end in (smooth.least, smooth.most):
        assert curvature - 1.1 * smooth.error - 1e-6 * curvature - 5e-3 * curvature <= end <= curvature * (1 + 1e-9)
    w = np.asarray(run.weights["map/kernel"]).reshape(3)
    samples = [2 * (a @ w - b)[:, None] * a for a, b in own]
    gradients = np.array([g.mean(0) for g in samples])
    share = np.array([len(b) for _, b in own]) / 40
    whole = share @ gradients
    last = m.found[-1]
    assert last.gradient2 == pytest.approx(whole @ whole, rel=1e-9)
    assert last.apart == pytest.approx(share @ ((gradients - whole) ** 2).sum(1), rel=1e-9)
    assert last.noise_most == pytest.approx(max(((g - g.mean(0)) ** 2).sum(1).mean() / 5 for g in samples), rel=1e-9)
    assert last.loss == pytest.approx(share @ [np.mean((a @ w - b) ** 2) for a, b in own], rel=1e-9)
    assert m.found[0].gradient2 > last.gradient2
    fixed = bounds(m)["fixed"]
    assert fixed.value == pytest.approx(sum(fixed.terms.values()))
    assert fixed.value >= m.gradient2  # with exact constants the repaired theorem holds, condition or not, here


def test_a_run_is_made_again_from_its_record(tmp_path):
    """Its weights are those recorded, the answer lies in its folder, and figures are drawn."""
    data = toy()
    names = ("x_train", "y_train", "x_test", "y_test")
    np.savez(tmp_path / "toy.npz", **{name: getattr(data, name) for name in names})
    run = fedge.run(algorithm="sdfeel", out=tmp_path / "run", data=str(tmp_path / "toy.npz"), **KEYS)
    done = call(tmp_path / "run", "--probes", 2, "--format", "json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert [probe["round"] for probe in answer["probes"]] == [0, 3]
    assert any("made again has the recorded weights" in note for note in answer["notes"])
    norm2 = sum(float((np.asarray(w, float) ** 2).sum()) for w in run.weights.values())
    assert answer["probes"][-1]["norm2"] == pytest.approx(norm2, rel=1e-5)
    assert set(answer["bounds"]) == {"printed", "fixed"}
    assert all("vacuous" in b["verdict"] for b in answer["bounds"].values())  # lr=0.05 is far above what they admit
    assert json.loads((tmp_path / "run" / "theory.json").read_text()) == {k: v for k, v in answer.items() if k != "out"}
    for suffix in (".png", ".pdf"):
        assert (tmp_path / "run" / f"theory{suffix}").stat().st_size > 1000


def test_each_paper_has_its_own_constants():
    found = {name: estimate(algorithm=name, probes=2, dataset=toy(), **KEYS) for name in ("hist", "hiersfl")}
    assert [c.symbol for c in found["hist"].constants] == ["L", "σ²", "δ1²", "δ2²", "X"]
    layers = [c.symbol for c in found["hiersfl"].constants][2:]
    assert layers == ["G² hidden", "σ² hidden", "G² output", "σ² output"]
    m = found["hist"].measurements
    assert bounds(m)["fixed"].terms["norm of the model"] == pytest.approx(
        24 * max(p.curvature for p in m.found) ** 2 * (m.found[0].norm2 + m.found[1].norm2) / 2
    )
    assert "L is the largest of 4 of 4 clients" in str(constants_table(found["hist"]).caption)
    split = found["hiersfl"]
    assert split.measurements.cut == 1
    most = [max(p.layer_gradient2[n] for p in split.measurements.found) for n in (0, 1)]
    assert bounds(split.measurements)["printed"].terms["minus gradient bounds"] == pytest.approx(-sum(most))


def test_no_bound_speaks_of_what_no_theorem_covers():
    keys = KEYS | {"algorithm": "fedavg", "clients": 8, "participation": 0.5, "codec": "int8"}
    why = " ".join(uncovered(experiment(Config.of(keys), toy())))
    assert "every client takes part" in why
    assert "updates travel as they are" in why
    assert uncovered(experiment(Config.of(KEYS | {"algorithm": "hist"}), toy())) == []
    prox = uncovered(experiment(Config.of(KEYS | {"algorithm": "fedprox"}), toy()))
    assert prox[0] == "there is no theory of fedprox here"


def test_no_bound_speaks_of_gossip_that_moves_the_mean():
    """Cells of three clients and of two: equation (6) as printed takes the plain mean of their models."""
    keys = KEYS | {"algorithm": "sdfeel", "clients": 5}
    assert uncovered(experiment(Config.of(keys), toy())) == []
    (why,) = uncovered(experiment(Config.of(keys | {"mixing": "printed"}), toy()))
    assert "gossip keeps the weighted mean" in why
    assert uncovered(experiment(Config.of(keys | {"clients": 4, "mixing": "printed"}), toy())) == []


@pytest.mark.parametrize(
    ("value", "conditions", "says"),
    [
        (0.5, {"η ≤ 1": False}, "vacuous: it needs η ≤ 1"),
        (5.0, {"η ≤ 1": True}, "vacuous: 5 times"),
        (-0.1, {}, "impossible"),
        (0.1, {}, "refuted"),
        (0.5, {"η ≤ 1": True}, "it holds, 2.5 times"),
        (float("inf"), {}, "vacuous: it is infinite"),
    ],
)
def test_what_a_bound_is_worth_is_said_plainly(value, conditions, says):
    assert verdict(bound({"term": value}, conditions), start=1.0, measured=0.2).startswith(says)


def test_the_bound_is_of_the_schedule_that_ran():
    """FedAvg's τ is the product: with τ1 = 2 · 3 and τ2 = 1 its bound is that of SD-FEEL at q = 0."""
    found = estimate(algorithm="fedavg", probes=2, dataset=toy(), **KEYS | {"edge_rounds": 3})
    m = found.measurements
    assert (m.tau1, m.tau2, m.q) == (6, 1, 0.0)
    assert bounds(m)["fixed"].terms == bounds(replace(m, tau1=2, tau2=3))["fixed"].terms


def test_words_that_make_no_sense_get_one_sentence(tmp_path):
    for words, code, sentence in [
        (["hierfavg", "target=0.5"], 2, "leave target out"),
        (["hierfavgg"], 2, "unknown algorithm"),
        (["hierfavg", "--probes", 1], 2, "probes=1 is not allowed"),
        ([tmp_path, "lr=0.1"], 2, "keeps its own keys"),
        ([tmp_path], 4, "does not hold a run"),
    ]:
        done = call(*words)
        assert (done.exit_code, done.stderr.count("\n")) == (code, 1), done.stderr
        assert sentence in done.stderr
    with pytest.raises(RunError):
        estimate(run=tmp_path)
    with pytest.raises(ConfigError):
        estimate({"algorithm": "fedavg"}, run=tmp_path)
