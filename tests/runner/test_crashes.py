"""A run, a comparison and a reproduction can be resumed from a death before each single file operation."""

import json
from functools import cache

import pytest

import fedge
import fedge.experiment.own
from fedge.runner import inspect, record
from fedge.runner.cache import ProgramCache
from tests.runner.deaths import reaper

KEYS = {"clients": 4, "cells": 2, "rounds": 3, "local_steps": 1, "edge_rounds": 1, "batch": 5, "checkpoint_every": 1}
load = cache(fedge.experiment.own.load)
CACHE = ProgramCache()  # one program for all the lives of a run


@pytest.fixture
def one_program(monkeypatch):
    """Runs that would each compile share their programs, within a comparison too; data is read once."""
    monkeypatch.setattr("fedge.runner.prepare.ProgramCache", lambda: CACHE)
    monkeypatch.setattr("fedge.experiment.own.load", load)


def live(folder):
    return fedge.run(KEYS, algorithm="hierfavg", out=folder)


def again(folder):
    """Do what a person would type: resume what has begun, else start it."""
    return fedge.run(resume=folder) if record.holds_run(folder) else live(folder)


def outcome(folder):
    found = {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.name in ("metrics.jsonl", "weights.safetensors", "ledger.json", "config.json")
    }
    assert not list(folder.rglob("*.part"))
    return found


def deaths(folder, live):
    with reaper.strikes(folder):
        live(folder)
    return reaper.seen


def test_a_run_survives_every_death(tmp_path, one_program):
    count = deaths(tmp_path / "whole", live)
    assert count > 25
    expected = outcome(tmp_path / "whole")
    identity = json.loads((tmp_path / "whole/run.json").read_text())["identity"]
    for moment in range(count):
        folder = tmp_path / str(moment)
        with reaper.strikes(folder, moment):
            live(folder)
            pytest.fail("it was to die")
        result = again(folder)
        assert outcome(folder) == expected, moment
        about = json.loads((folder / "run.json").read_text())
        assert (about["state"], about["identity"]) == ("finished", identity)
        assert len(result.history) == 3
        assert inspect.verify(folder)


def test_a_resumed_run_survives_death_too(tmp_path, one_program):
    """Killed in round 2, and again at every moment of its second life."""

    def begin(folder):
        with reaper.strikes(folder, 18):
            live(folder)
            pytest.fail("it was to die")

    live(tmp_path / "whole")
    begin(tmp_path / "cut")
    with reaper.strikes(tmp_path / "cut"):
        again(tmp_path / "cut")
    count, expected = reaper.seen, outcome(tmp_path / "whole")
    for moment in range(0, count, 3):
        folder = tmp_path / str(moment)
        begin(folder)
        with reaper.strikes(folder, moment):
            again(folder)
            pytest.fail("it was to die")
        again(folder)
        assert outcome(folder) == expected, moment


def test_a_comparison_survives_every_death(tmp_path, one_program):
    def live(folder):
        return fedge.compare(["fedavg", "hierfavg"], out=folder, **KEYS | {"rounds": 1, "model": "mlp"})

    count, expected = deaths(tmp_path / "whole", live), outcome(tmp_path / "whole")
    for moment in range(count):
        folder = tmp_path / str(moment)
        with reaper.strikes(folder, moment):
            live(folder)
            pytest.fail("it was to die")
        results = fedge.compare(resume=folder) if (folder / "compare.json").exists() else live(folder)
        assert list(results) == ["fedavg", "hierfavg"]
        assert outcome(folder) == expected, moment


def test_a_run_that_is_extended_survives_every_death(tmp_path, one_program):
    """It once ended at a round that the longer run does not test."""
    keys = {"algorithm": "hierfavg"} | KEYS | {"eval_every": 2}

    def extend(folder):
        return fedge.run(resume=folder, rounds=4)

    fedge.run(keys | {"rounds": 4}, out=tmp_path / "whole")
    fedge.run(keys, out=tmp_path / "counted")
    with reaper.strikes(tmp_path / "counted"):
        extend(tmp_path / "counted")
    count, expected = reaper.seen, outcome(tmp_path / "whole")
    for moment in range(0, count, 2):
        folder = tmp_path / str(moment)
        fedge.run(keys, out=folder)
        with reaper.strikes(folder, moment):
            extend(folder)
            pytest.fail("it was to die")
        extend(folder)
        assert outcome(folder) == expected, moment
