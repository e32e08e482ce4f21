"""What a run would cost is told without training it, and is what a run says it has cost."""

import json

import pytest
from typer.testing import CliRunner

from fedge.cli import app
from fedge.experiment.build import experiment
from fedge.experiment.config import Config
from fedge.runner.costs import Costs
from fedge.runner.expected import expected_costs
from fedge.view.expected import cost_lines
from tests.experiment.test_network_file import GOOD

KEYS = {"clients": 6, "cells": 3, "local_steps": 2, "edge_rounds": 2, "rounds": 3, "partition": "iid", "batch": 5}
FIVE = {
    "fedavg": {},
    "hierfavg": {},
    "hist": {},
    "hiersfl": {"model": "cnn", "cut": "pool2"},
    "sdfeel": {"graph": "path"},
}


@pytest.mark.parametrize("algorithm", FIVE)
@pytest.mark.parametrize("spread", [0.0, 0.7])
def test_it_is_what_a_run_says_and_its_parts_are_the_whole(algorithm, spread):
    """The critical path of each round is as long as the round; rounds of edges that gossip may overlap."""
    config = Config.of(KEYS | FIVE[algorithm] | {"algorithm": algorithm, "device_spread": spread, "straggle": spread})
    found, spent = expected_costs(config), Costs(experiment(config)).after(3)
    assert found["bytes"]["run"] == spent.sent
    assert found["seconds"]["run"] == pytest.approx(spent.seconds)
    if algorithm != "sdfeel" or not spread:
        followed = 1 if not spread else 3
        assert found["rounds_followed"] == followed
        part = found["seconds"]["round"] if not spread else found["seconds"]["run"]
        assert sum(span["seconds"] for span in found["path"]) == pytest.approx(part)
    # 6 clients × 4 steps × 5 samples × 3 passes over the multiply-adds of a sample, and 3 rounds of that
    assert found["multiply_adds"]["run"] == pytest.approx(
        (1 / 3 if algorithm == "hist" else 1) * 3 * 6 * 4 * 5 * 3 * found["multiply_adds"]["sample"], rel=2e-3
    )
    assert found["client_memory"]["total"] > 0
    assert (found["edge_memory"] is None) == (algorithm == "fedavg")
    assert json.loads(json.dumps(found)) == found
    assert cost_lines(found).startswith(f"{algorithm}: ")


def test_a_network_says_who_sets_the_pace(tmp_path):
    """Client y sends a model of 7.6 Mbit at 2 Mbit/s, up and down, in both edge rounds: 15.3 s of a round."""
    file = tmp_path / "net.toml"
    file.write_text(GOOD)
    keys = {k: v for k, v in KEYS.items() if k not in ("clients", "cells")}
    found = expected_costs(Config.of(keys | {"algorithm": "sdfeel", "network": str(file)}))
    assert found["round_set_by"] == {"client y": 3}
    first = found["path"][0]
    assert (first["who"], first["does"]) == ("client y", "sends and receives")
    assert first["seconds"] == pytest.approx(3 * 4 * 32 * 238_510 / 2e6)
    assert [path[0]["who"] for path in found["round_paths"]] == ["client y"] * 3
    assert found["links"]["edge_to_edge"]["each"] == [4 * 238_510] * 2
    text = cost_lines(found)
    assert "client y sends and receives" in text
    assert "what most of a round's time goes to, in 3 rounds: client y (3)" in text


def test_float64_is_sent_and_held_in_twice_the_bytes():
    one, two = (expected_costs(Config.of(KEYS | {"algorithm": "hierfavg", "dtype": d})) for d in ("float32", "float64"))
    assert two["bytes"]["run"] == {tier: 2 * size for tier, size in one["bytes"]["run"].items()}
    assert two["client_memory"]["models"] == 2 * one["client_memory"]["models"]


def test_known_data_need_not_be_there(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDGE_CACHE", str(tmp_path))
    found = expected_costs(Config.of({"algorithm": "hierfavg", "data": "cifar10", "model": "cnn", "rounds": 2}))
    assert found["rounds"] == 2


def test_the_commands(tmp_path):
    """A network is made, drawn, and asked for its costs."""
    file = tmp_path / "net.toml"

    def said(*words):
        done = CliRunner().invoke(app, [*words])
        assert done.exit_code == 0, done.output
        return done.output

    said("network", "make", "factory", "--out", str(file))
    assert "factory" in said("network", "make")
    assert CliRunner().invoke(app, ["network", "make", "factory", "--out", str(file)]).exit_code == 4
    assert CliRunner().invoke(app, ["network", "make", "fabric"]).exit_code == 2
    assert CliRunner().invoke(app, ["cost", "run", "fedavg", "algorithm=hist"]).exit_code == 2
    drawn = said("network", "show", str(file), "batch=5")
    assert "press, whose 8 clients share 33 Mbit/s" in drawn
    assert "backhaul is full (up)" in drawn
    costs = json.loads(said("cost", "run", "hierfavg", f"network={file}", "rounds=2", "--format", "json"))
    assert costs["clients"] == 24
    assert "a client holds up to" in said("cost", "run", "hierfavg", f"network={file}", "rounds=2")
