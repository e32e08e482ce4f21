"""A round that takes several calls says how far it is, and can be left between two of them."""

import signal

import pytest

import fedge
from fedge.engine import driver
from fedge.errors import StoppedError
from fedge.runner import record
from fedge.runner.cache import ProgramCache
from fedge.runner.signals import StopRequest

KEYS = {"algorithm": "hierfavg", "clients": 12, "cells": 2, "rounds": 3, "local_steps": 2, "edge_rounds": 2, "batch": 5,
        "devices": 1, "eval_every": 1, "checkpoint_every": 50}  # fmt: skip
CALLS = 2 * 4  # edge rounds × calls of three clients, which are six steps


@pytest.fixture(scope="module")
def cache():
    return ProgramCache()


@pytest.fixture(autouse=True)
def short_calls(monkeypatch):
    monkeypatch.setattr(driver, "STEPS_PER_CALL", 6)


class Impatient(fedge.Listener):
    """This asks to stop after a call, unless that is never."""

    def __init__(self, after=None):
        self.parts, self.after, self.stop = [], after, StopRequest()

    def part(self, number, part, config):
        self.parts.append((number, part))
        if (number, round(part * CALLS)) == self.after:
            self.stop.signal = signal.SIGTERM


def test_parts_are_told(tmp_path, cache):
    listener = Impatient()
    fedge.run(KEYS, out=tmp_path / "run", listener=listener, cache=cache)
    assert listener.parts == [(number, call / CALLS) for number in (1, 2, 3) for call in range(1, CALLS + 1)]


@pytest.mark.parametrize("after", [(1, 1), (2, 1), (3, 5), (2, CALLS)])
def test_a_wish_to_stop_does_not_wait_for_the_round(tmp_path, cache, after):
    """What was whole is saved although no checkpoint was due, and the rest is made again to the same bits."""
    whole, cut, (number, call) = tmp_path / "whole", tmp_path / "cut", after
    fedge.run(KEYS, out=whole, cache=cache)
    listener = Impatient(after)
    said = rf"stopped after round {number - 1} of 3 \(round {number} was given up\); continue with: fedge run --resume"
    if call == CALLS:  # the round was over
        said = rf"stopped after round {number} of 3; continue with: fedge run --resume"
    with pytest.raises(StoppedError, match=said):
        fedge.run(KEYS, out=cut, listener=listener, stop=listener.stop, cache=cache)
    assert listener.parts[-1] == (number, call / CALLS)
    assert record.read_about(cut)["state"] == "stopped"
    assert len(record.read_rows(cut / "metrics.jsonl")) == number - (call < CALLS)
    assert len(fedge.run(resume=cut, cache=cache).history) == 3
    for name in ("metrics.jsonl", "weights.safetensors"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes()


def test_a_round_that_is_given_up_without_checkpoints_cannot_go_on(tmp_path, cache):
    keys, listener = KEYS | {"checkpoint_every": 0}, Impatient((2, 3))
    with pytest.raises(StoppedError, match="with checkpoint_every=0 no state was saved, so it cannot be continued"):
        fedge.run(keys, out=tmp_path / "x", listener=listener, stop=listener.stop, cache=cache)
    assert not (tmp_path / "x/checkpoint.safetensors").exists()
