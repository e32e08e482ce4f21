"""The planner: its pick is that of a whole grid, the same after a death, within its budget, and shows what it may."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import fedge
from fedge.cli import app
from fedge.cost.clock import late_factors
from fedge.errors import ConfigError
from fedge.experiment.build import experiment
from fedge.experiment.config import Config
from fedge.runner.cache import ProgramCache
from fedge.runner.prepare import Given
from fedge.studies.answer import Final
from fedge.studies.choices import make_choices
from fedge.studies.exposure import exposure
from fedge.studies.planner import Planner, plan
from fedge.studies.question import split
from fedge.studies.race import Result, Standing
from fedge.studies.sensitivity import RATES, rates_of, with_rate
from fedge.studies.trials import OF_CLIENTS, Energy, Trial
from fedge.view.page_data import page_data
from tests.helpers import small, toy
from tests.plans import answer_of, spread, trial_of

FIXED = {"clients": 4, "cells": 2, "batch": 5, "devices": 2, "partition": "iid", "local_steps": 2, "edge_rounds": 1,
         "codec": "none"}  # fmt: skip
ASKED = FIXED | {"target": 0.5, "algorithm": "hierfavg", "lr": [0.02, 0.1, 0.3], "eval_every": [2, 4], "seeds": 2,
                 "finalists": 2, "budget": 3000}  # fmt: skip


def planner(keys):
    return Planner(*split(keys), Given(None, None, None), None, lambda *_: None)


def call(*words):
    return CliRunner().invoke(app, ["plan", *map(str, words)])


class DeathError(Exception):
    """The process is gone."""


def test_the_pick_is_the_best_of_the_whole_grid_and_death_changes_nothing(tmp_path):
    """Six settings; each is also run to the target by itself. The plan is killed in the race and in the finals."""
    whole = plan(ASKED, out=tmp_path / "whole")
    cache, cost, steps = ProgramCache(), {}, 0
    for name, trial in whole.trials.items():
        run = fedge.run(trial.keys | {"rounds": 200}, out=tmp_path / name.replace(" ", "_"), cache=cache)
        cost[name] = run.reached.simulated_seconds
        steps += run.final["round"] * run.experiment.job.steps_per_round
    assert len(cost) == 6
    best = min(cost.values())
    assert whole.trials[whole.recommended].spent(whole.reached[whole.recommended]).seconds == pytest.approx(best)
    raced = sum(trial.steps for trial in whole.trials.values())
    assert raced < steps
    assert whole.steps == raced + sum(f.rounds * 8 for f in whole.finals)  # 4 clients × 2 steps a round
    assert {f.seed for f in whole.finals} == {1, 2}

    heard = []

    def killer(at):
        def tell(said, *_):
            heard.append(said)
            if len(heard) == at:
                raise DeathError

        return tell

    with pytest.raises(DeathError):
        plan(ASKED, out=tmp_path / "killed", tell=killer(4))
    with (tmp_path / "killed" / "trials.jsonl").open("a") as file:
        file.write('{"name": "cut sho')
    (state,) = [*(tmp_path / "killed" / "states").iterdir()][:1]
    state.unlink()  # and one state is lost: it is trained again

    def dies_in_the_finals(said, done, *_):
        if said.startswith("finals") and done == 1:
            raise DeathError

    with pytest.raises(DeathError):
        plan(resume=tmp_path / "killed", tell=dies_in_the_finals)
    again = plan(resume=tmp_path / "killed")
    for name in ("answer.json", "settings.csv"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert again.recommended == whole.recommended
    assert not any((tmp_path / "whole" / "states").iterdir())
    command = json.loads((tmp_path / "whole" / "answer.json").read_text())["recommended"]["command"].split()
    assert command[:3] == ["fedge", "run", "hierfavg"]
    redone = fedge.run(dict(word.split("=") for word in command[3:]), algorithm="hierfavg", out=tmp_path / "again",
                       cache=cache)  # fmt: skip
    assert redone.reached.simulated_seconds == pytest.approx(best)


def test_a_budget_is_honoured_and_nothing_reached_is_an_answer(tmp_path):
    keys = ASKED | {"target": 0.99, "budget": 700, "algorithm": "hierfavg,fedavg", "lr": 0.1, "eval_every": 2}
    found = plan(keys, out=tmp_path / "plan")
    assert 0 < found.steps <= 700
    assert found.budget_spent
    assert found.recommended is None
    assert "not finished: the race's budget was too small for another lap" in found.fate.values()
    assert all(0.1 < trial.best < 0.99 for trial in found.trials.values())
    done = call("--resume", tmp_path / "plan")
    assert done.exit_code == 0, done.output
    assert "nothing reached accuracy 99.0%" in done.stdout
    assert "not finished: the" in done.stdout
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "plan")])
    assert shown.stdout.rstrip() == done.stdout.partition("\nplan folder")[0].rstrip()
    (tmp_path / "plan" / "answer.json").unlink()
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "plan")])
    assert (shown.exit_code, "has no answer yet; go on with: fedge plan --resume" in shown.stderr) == (4, True)


def test_what_must_not_be_seen_or_does_not_fit_is_left_out(tmp_path):
    """HierSFL at cut=0 shows inputs, at the hidden layer activations, both show labels; a client may be small."""
    keys = FIXED | {"target": 0.2, "algorithm": "hierfavg,hiersfl", "cut": "0,hidden", "lr": 0.1}
    left = {}
    for exclude in ("inputs", "inputs,activations", "labels"):
        found = planner(keys | {"exclude": exclude})
        left[exclude] = {trial.keys.get("cut", "") for _, trial in found.candidates}
        assert found.refused
        assert all(f"which exclude={exclude} rules out" in why for why in found.refused.values())
    assert left == {"inputs": {"", "hidden"}, "inputs,activations": {""}, "labels": {""}}
    assert {trial.keys.get("cut", "") for _, trial in planner(keys).candidates} == {"", "hidden"}  # unless asked for
    assert not planner(keys | {"exclude": "none"}).refused
    with pytest.raises(ConfigError, match=r"no setting is possible: a client needs .* MB, more than 0.001 MB"):
        plan(keys | {"client_memory": 1000, "algorithm": "hierfavg"}, out=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_plan_knows_which_objects_were_passed_in():
    keys = FIXED | {"target": 0.9, "algorithm": "hierfavg", "lr": 0.1, "partition": "iid"}
    given = Given(small(clients=4, cells=2).dataset, None, None)
    assert Planner(*split(keys), given, None, lambda *_: None).passed_in == ("data",)
    assert planner(keys).passed_in == ()


def test_a_known_data_set_that_is_passed_in_is_named_in_the_question(monkeypatch, tmp_path):
    """A command that left it away would train on the default one."""
    asked = {}

    def look(question, keys, *_):
        asked.update(keys)
        raise DeathError

    monkeypatch.setattr("fedge.studies.planner.is_known", lambda dataset: True)
    monkeypatch.setattr("fedge.studies.planner.Planner", look)
    with pytest.raises(DeathError):
        plan(target=0.5, dataset=replace(toy(), name="mnist"), out=tmp_path / "plan")
    assert asked["data"] == "mnist"


def test_of_many_settings_some_are_drawn_of_each_algorithm_in_turn():
    found = planner(FIXED | {"target": 0.5, "local_steps": [1, 2, 5], "settings": 5, "exclude": "none"})
    names = [trial.keys["algorithm"] for _, trial in found.candidates]
    assert names == ["fedavg", "hierfavg", "hist", "hiersfl", "sdfeel"]
    assert found.choices.draw(3) == found.choices.draw(3) != found.choices.draw(4)
    assert len(found.choices.draw(3)) == found.choices.size > 50


def test_neighbours_differ_in_one_step_of_one_key():
    choices = planner(FIXED | {"target": 0.5, "algorithm": "hierfavg", "lr": [1, 2, 3], "batch": [5, 10]}).choices
    keys = choices.complete({"algorithm": "hierfavg", "lr": 2, "batch": 5})
    near = [(own["lr"], own["batch"]) for own in choices.neighbours(keys)]
    assert sorted(near) == [(1, 5), (2, 10), (3, 5)]
    assert choices.size == 6


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["lr=0.1"], "a plan needs a target to reach"),
        (["target=1.5"], "target=1.5 is no accuracy that a run could reach"),
        (["target=0.5", "minimise=joy"], "minimise=joy is not allowed"),
        (["target=0.5", "minimise=energy"], "minimise=energy needs rates of it"),
        (["target=0.5", "exclude=faces"], "unknown kind of exposure 'faces'"),
        (["target=0.5", "exclude=updates"], "leaves nothing to plan"),
        (["target=0.5", "deadline=soon"], "deadline=soon is not allowed"),
        (["target=0.5", "deadline=-1"], "deadline=-1 is not allowed"),
        (["target=0.5", "deadline=1e-9", "algorithm=hist", "lr=1"], "its first test would come after the deadline"),
        (["target=0.5", "budget=0"], "budget=0 is not allowed"),
        (["target=0.5", "algorithm=hirfavg"], "did you mean 'hierfavg'"),
        (["target=0.5", "lrr=1"], "unknown key 'lrr'"),
        (["target=0.5", "seed=1,2"], "seed is no choice of a plan"),
        (["target=0.5", "lr=x,y"], "lr=x is not allowed"),
        (["target=0.5", "budget_seconds=3"], "give deadline=SECONDS instead"),
        (["target=0.5", "nowhere.toml"], "'nowhere.toml' is neither a network's file nor of the form key=value"),
        (["target=0.05", "settings=1"], "is reached by the untrained model already"),
    ],
)
def test_a_question_that_cannot_be_answered_gets_one_sentence(tmp_path, words, sentence):
    fixed = [f"{key}={value}" for key, value in FIXED.items()]
    done = call(
        *words, *(word for word in fixed if word.partition("=")[0] not in str(words)), "--out", tmp_path / "plan"
    )
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
    assert sentence in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "plan").exists()


@pytest.mark.parametrize("algorithm", ["hiersfl", "sdfeel", "fedavg"])
def test_costs_with_another_rate_are_those_of_a_run_with_it(algorithm):
    """Half or twice of each key, against an experiment that is configured so."""
    trial = trial_of(algorithm=algorithm)
    moved = []
    for rate in RATES:
        for factor in (0.5, 2.0):
            there = trial_of(algorithm=algorithm, **{rate: factor * getattr(trial.made.config, rate)})
            other = with_rate(trial, rate, factor).spent(7)
            assert other == pytest.approx(there.spent(7), rel=1e-12)
            moved += [rate] if other.seconds != pytest.approx(trial.spent(7).seconds, rel=1e-9) else []
    used = {"hiersfl": {"cpu_hz", "edge_hz", "uplink_bps", "cloud_bps"}, "fedavg": {"cpu_hz", "cloud_bps"},
            "sdfeel": {"cpu_hz", "uplink_bps", "edge_bps"}}  # fmt: skip
    assert set(moved) == used[algorithm]


HALL = """
name = "hall"
[backhaul]
up_bps = {backhaul}
[[edges]]
name = "north"
cpu_hz = {edge_hz}
up_bps = {shared}
backhaul_up_bps = {line}
[[edges]]
name = "south"
cpu_hz = {edge_hz}
up_bps = {shared}
backhaul_up_bps = {line}
[[links]]
from = "north"
to = "south"
bps = {link}
[[clients]]
name = "robot"
cell = "north"
count = 2
cpu_hz = {cpu_hz}
up_bps = {own}
[[clients]]
name = "press"
cell = "south"
count = 2
step_seconds = {step}
up_bps = {own}
"""
SPEEDS = {"backhaul": 3e6, "edge_hz": 1e9, "shared": 8e6, "line": 2e6, "link": 5e6, "cpu_hz": 1e8, "own": 6e6,
          "step": 0.02}  # fmt: skip
MEANS = {"backhaul": ["backhaul"], "edges' processors": ["edge_hz"], "links shared in cells": ["shared"],
         "edges' lines": ["line"], "links between edges": ["link"], "clients' processors": ["cpu_hz", "step"],
         "clients' links": ["own"]}  # fmt: skip


def hall(path, kind=None, factor=1.0):
    other = {name: SPEEDS[name] * (1 / factor if name == "step" else factor) for name in MEANS.get(kind, [])}
    path.write_text(HALL.format(**SPEEDS | other))
    return path


@pytest.mark.parametrize(("algorithm", "idle"), [
    ("hiersfl", {"links between edges"}), ("sdfeel", {"edges' processors", "edges' lines", "backhaul"}),
    ("fedavg", {"edges' processors", "links between edges"}),
])  # fmt: skip
def test_costs_of_a_network_with_faster_parts_are_those_of_its_file_with_other_numbers(tmp_path, algorithm, idle):
    def trial(kind=None, factor=1.0):
        keys = {"algorithm": algorithm, "network": str(hall(tmp_path / "hall.toml", kind, factor)), "target": 0.9,
                "local_steps": 2, "edge_rounds": 2, "partition": "iid"}  # fmt: skip
        return Trial(keys, experiment(Config.of(keys)), Energy(), 0)

    plain, moved = trial(), set()
    assert set(rates_of(plain.made)) == set(MEANS)
    for kind in MEANS:
        for factor in (0.5, 2.0):
            other = with_rate(plain, kind, factor).spent(3)
            assert other == pytest.approx(trial(kind, factor).spent(3), rel=1e-12)
            moved |= {kind} if other.seconds != pytest.approx(plain.spent(3).seconds, rel=1e-9) else set()
    assert not moved & idle
    assert "clients' processors" in moved


def test_a_network_of_a_file_says_cells_links_and_costs(tmp_path):
    place = hall(tmp_path / "hall.toml")
    words = "algorithm=hierfavg,sdfeel lr=0.1 local_steps=2 edge_rounds=1 gossip=1 codec=none partition=iid devices=2"
    done = call(place, "target=0.2", *words.split(), "seeds=1", "--out", tmp_path / "plan")
    assert done.exit_code == 0, done.output
    answer = json.loads((tmp_path / "plan" / "answer.json").read_text())
    assert answer["effort"]["possible"] == answer["effort"]["tried"] == 2  # the graph is the network's
    assert f"network={place}" in answer["recommended"]["command"]
    assert {change["rate"] for change in answer["recommended"]["changes"]} == set(MEANS)
    assert (tmp_path / "plan" / "front.png").stat().st_size > 1000
    page = page_data(tmp_path / "plan")
    assert page["groups"][0]["name"] == answer["recommended"]["name"]
    assert {one["name"] for one in page["plan"]["race"]} <= {line["name"] for line in answer["settings"]}
    assert answer["recommended"]["command"] in (tmp_path / "plan" / "report.html").read_text()
    assert "fresh seeds reached accuracy 20.0%" in done.stdout
    planned = json.loads((tmp_path / "plan" / "plan.json").read_text())
    for change, said in [({"code": "0"}, "other source files of fedge"), ({"jax": "0"}, "another version of JAX")]:
        other = planned | {"made_with": planned["made_with"] | change}
        (tmp_path / "plan" / "plan.json").write_text(json.dumps(other))
        done = call("--resume", tmp_path / "plan")
        assert (done.exit_code, done.stderr.count("\n")) == (4, 1), done.output
        assert f"was begun with {said}; go on with that" in done.stderr
    (tmp_path / "plan" / "plan.json").write_text(json.dumps(planned))
    assert call("--resume", tmp_path / "plan").exit_code == 0
    place.write_text(place.read_text().replace("step_seconds = 0.02", "step_seconds = 0.03"))
    done = call("--resume", tmp_path / "plan")
    assert (done.exit_code, done.stderr.count("\n")) == (4, 1), done.output
    assert "was begun with other data, another model, task or network" in done.stderr


def test_energy_is_what_clients_compute_and_send():
    """Seven clients make 6 steps a round: 2 W × 42 t_c, and half a joule for each MB of theirs."""
    trial = trial_of(algorithm="hierfavg")
    links = trial.made.clock.ledger.round(0)
    sent = sum(int(links[tier].sum()) for tier in OF_CLIENTS if tier in links)
    joules = 2.0 * 42 * trial.made.clock.rates.step_seconds + 0.5 * sent / 1e6
    assert trial.spent(3).energy == pytest.approx(3 * joules)
    half = Config.of({"algorithm": "hierfavg", **FIXED, "clients": 8, "participation": 0.5, "target": 0.5})
    made = experiment(half)
    own = Trial({}, made, Energy(client_watts=1.0), 0).spent(1)
    assert own.energy == pytest.approx(4 * 2 * made.clock.rates.step_seconds)  # half of the clients, two steps each


def test_energy_counts_slow_devices_and_late_ones():
    """A device that is twice as slow, or late by as much, computes twice as long: 2 local steps, in each edge round."""
    trial = trial_of(device_spread=1.0, straggle=0.5, participation=0.5, local_steps=2, seed=3)
    clock, seconds = trial.made.clock, 0.0
    for number in range(6):  # three rounds of two edge rounds
        late = late_factors(3, number, 7, 0.5)
        for client in np.concatenate(clock.ledger.participants(number)):
            seconds += 2 * clock.rates.step_seconds * clock.slowness[0][client] * late[client]
    sent = sum(trial._costs.after(3).sent.get(tier, 0) for tier in OF_CLIENTS)
    assert trial.spent(3).energy == pytest.approx(2.0 * seconds + 0.5 * sent / 1e6, rel=1e-12)


def test_a_setting_that_costs_nothing_does_not_race():
    """At cut=0 clients compute nothing, so without joules_per_mb their energy is 0 and a race would never end."""
    keys = FIXED | {"target": 0.2, "algorithm": "hierfavg,hiersfl", "cut": "0", "lr": 0.1, "exclude": "none",
                    "minimise": "energy", "client_watts": 2.0}  # fmt: skip
    found = planner(keys)
    assert found.refused == {"hiersfl": "it costs nothing of what is to be small (energy); add joules_per_mb"}
    assert [name for name, _ in found.candidates] == ["hierfavg"]
    assert not planner(keys | {"joules_per_mb": 0.1}).refused


def test_fedavg_may_take_as_many_steps_between_averages_as_others_take():
    axes = make_choices({"target": 0.5}, ("hidden", "top"), 4, linked=False).axes
    products = {a * b for a in axes["hierfavg"]["local_steps"] for b in axes["hierfavg"]["edge_rounds"]}
    assert axes["fedavg"]["local_steps"] == tuple(sorted(products)) == (2, 5, 8, 10, 20, 40, 80)
    assert axes["fedavg"]["edge_rounds"] == (1,)
    assert make_choices({"local_steps": [3, 4]}, ("top",), 4, linked=False).axes["fedavg"]["local_steps"] == (3, 4)


def test_costs_are_those_of_fresh_seeds_by_their_own_clocks(tmp_path):
    found = answer_of(tmp_path, {"a": [4, 5], "b": [4, None], "c": []})
    seconds = [spread(seed).spent(1).seconds for seed in range(3)]  # of a round; they are all alike
    assert len(set(seconds)) == 3
    assert found.costs["a"].seconds == pytest.approx((4 * seconds[1] + 5 * seconds[2]) / 2)
    assert found.over_seeds("a")["seconds"]["mean"] == found.costs["a"].seconds
    assert found.costs["b"].seconds == pytest.approx((4 * seconds[1] + 9 * seconds[2]) / 2)  # at least
    assert found.over_seeds("b")["seconds"]["mean"] == pytest.approx(4 * seconds[1])
    assert found.costs["c"].seconds == pytest.approx(4 * seconds[0])
    assert found.recommended == "a"
    lines = {line["name"]: line for line in found.to_json()["settings"]}
    assert [lines[name]["rounds"] for name in "abc"] == [4.5, 6.5, 4]
    assert [lines[name]["fresh_seeds"] for name in "abc"] == [{"of": 2, "reached": 2}, {"of": 2, "reached": 1}, None]
    changes = found.to_json()["recommended"]["changes"]
    halved = next(c for c in changes if (c["rate"], c["factor"]) == ("cpu_hz", 0.5))
    own = [with_rate(spread(seed), "cpu_hz", 0.5).spent(3 + seed).seconds for seed in (1, 2)]
    assert halved["seconds"] == pytest.approx(sum(own) / 2)


def test_the_front_holds_settings_against_each_other_on_one_seed(tmp_path):
    """All send and hold as much: who was there first beats the rest, whatever fresh seeds say."""
    found = answer_of(tmp_path, {"a": [9, 9], "b": [1, 1], "c": []})
    assert found.recommended == "b"
    assert found.front == ["a"]
    assert [line["front"] for line in found.to_json()["settings"] if line["name"] == "a"] == [True]


@pytest.mark.parametrize(("room", "seeds"), [(71, ""), (72, "a"), (167, "aa"), (168, "ab"), (247, "ab"), (248, "abab")])
def test_finalists_run_on_the_same_seeds_and_equally_long(monkeypatch, tmp_path, room, seeds):
    """Finals of `a` may take 72 steps, thrice 3 rounds of 8, and take 32; those of `b` may take 96 and take 48."""
    found = planner(FIXED | {"target": 0.5, "algorithm": "hierfavg", "lr": 0.1, "seeds": 2, "budget": 1000 + room})
    trial, asked = found.candidates[0][1], []

    def final(folder, name, trial, seed, most):
        asked.append((name, most))
        return Final(name, seed, "", most // 2, None, trial)

    monkeypatch.setattr(found, "_final", final)
    trials = SimpleNamespace(steps=1000, made=0, trials={"a": trial, "b": trial}, price=lambda name, rounds: rounds)
    ends = {"a": Standing(3, 1.0, 3), "b": Standing(4, 1.0, 4)}
    finals = found._finals(tmp_path, trials, Result(ends))
    assert [f.name for f in finals] == list(seeds)
    assert set(asked) <= {("a", 9), ("b", 12)}


def test_what_is_seen_is_said():
    for algorithm, keys, seen in [
        ("fedavg", {}, {"updates"}),
        ("hiersfl", {"cut": "0"}, {"updates", "inputs", "labels"}),
        ("hiersfl", {"cut": "hidden"}, {"updates", "activations", "labels"}),
        ("hiersfl", {"cut": "top"}, {"updates"}),
    ]:
        made = small(algorithm=algorithm, **keys)
        assert set(exposure(made.job.algorithm, made.model.stages)) == seen
    assert "neighbours" in exposure(small(algorithm="sdfeel").job.algorithm, ())["updates"]
