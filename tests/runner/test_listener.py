"""Listeners hear of rounds, tests, saved states and the end in order; they may end a run, and cannot harm it."""

import json

import numpy as np
import pytest

import fedge
from fedge.errors import RunError
from fedge.runner.cache import ProgramCache
from tests.helpers import toy

KEYS = {"algorithm": "hierfavg", "clients": 4, "cells": 2, "local_steps": 1, "edge_rounds": 2, "rounds": 6, "batch": 5,
        "partition": "iid", "eval_every": 2, "checkpoint_every": 3}  # fmt: skip
CACHE = ProgramCache()


def run(out, listener=None, **keys):
    return fedge.run(KEYS | keys, out=out, dataset=toy(), cache=CACHE, listener=listener)


def resume(out, listener=None):
    return fedge.run(resume=out, dataset=toy(), cache=CACHE, listener=listener)


def state_of(folder):
    return json.loads((folder / "run.json").read_text())["state"]


class Diary(fedge.Listener):
    """This writes down what it hears; `wish` names the event, and the round, at which it wants to stop or fails."""

    def __init__(self, event="", at=0, problem=None):
        self.heard, self._event, self._at, self._problem = [], event, at, problem

    def _write(self, event, number, *more):
        self.heard.append((event, number, *more))
        if (event, number) == (self._event, self._at):
            if self._problem is not None:
                raise self._problem
            return True
        return None

    def ready(self, experiment, out):
        self._write("ready", out.name)

    def trained(self, done, loss, config):
        assert np.isfinite(loss)
        return self._write("trained", done)

    def tested(self, row, config):
        return self._write("tested", row["round"])

    def saved(self, path, done):
        assert path.exists()
        self._write("saved", done)

    def finished(self, result):
        self._write("finished", result.out.name, result.stopped)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """This run was never stopped."""
    diary = Diary()
    return run(tmp_path_factory.mktemp("listeners") / "whole", diary), diary


def test_events_come_in_order(whole):
    assert whole[1].heard == [
        ("ready", "whole"),
        ("trained", 2), ("tested", 2),  # rounds 1 and 2 together: between them is nothing to test or to save
        ("trained", 3), ("saved", 3),
        ("trained", 4), ("tested", 4),
        ("trained", 6), ("tested", 6), ("saved", 6),
        ("finished", "whole", False),
    ]  # fmt: skip


@pytest.mark.parametrize(("event", "at"), [("tested", 2), ("trained", 3), ("trained", 4)])
def test_a_listener_ends_a_run_which_goes_on_to_the_same_weights(whole, tmp_path, event, at):
    diary = Diary(event, at)
    result = run(tmp_path / "cut", [fedge.Listener(), diary])
    assert (result.stopped, result.final["round"]) == (True, at)  # tested there, though it was not time to
    assert diary.heard[-3:] == [("tested", at), ("saved", at), ("finished", "cut", True)]
    assert state_of(tmp_path / "cut") == "stopped"
    longer = resume(tmp_path / "cut")
    assert longer.stopped is False
    assert longer.history == whole[0].history
    assert all(np.array_equal(longer.weights[path], w) for path, w in whole[0].weights.items())
    assert state_of(tmp_path / "cut") == "finished"


def test_a_wish_to_stop_after_the_last_round_is_the_end(tmp_path):
    assert run(tmp_path / "x", Diary("tested", 6)).stopped is False
    assert state_of(tmp_path / "x") == "finished"


@pytest.mark.parametrize(("event", "at"), [("ready", "cut"), ("trained", 3), ("tested", 4), ("saved", 6)])
def test_an_exception_in_a_listener_is_a_sentence_and_loses_nothing(whole, tmp_path, event, at):
    with pytest.raises(RunError) as caught:
        run(tmp_path / "cut", Diary(event, at, ValueError("no ink\nleft")))
    assert str(caught.value) == (
        f"the listener Diary failed in {event} (ValueError: no ink\\nleft); what was trained is kept: "
        f"fedge run --resume {tmp_path / 'cut'}"
    )
    assert isinstance(caught.value.__cause__, ValueError)  # its traceback is there for whoever wants it
    assert state_of(tmp_path / "cut") == "failed"
    diary = Diary()
    assert resume(tmp_path / "cut", diary).history == whole[0].history
    later = [number for kind, number, *_ in diary.heard if kind == "trained"]
    assert later == [n for n in (2, 3, 4, 6) if event == "ready" or n > at]  # no round is trained twice


def test_an_exception_at_the_end_leaves_a_run_that_is_over(whole, tmp_path):
    with pytest.raises(RunError, match="failed in finished"):
        run(tmp_path / "cut", Diary("finished", "cut", KeyError("x")))
    assert state_of(tmp_path / "cut") == "finished"
    assert resume(tmp_path / "cut").history == whole[0].history


def test_a_sentence_of_fedge_stays_one(tmp_path):
    with pytest.raises(fedge.DataError, match=r"^mine$"):
        run(tmp_path / "cut", Diary("tested", 2, fedge.DataError("mine")))


def test_a_tracker_listens_to_a_run(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = run(tmp_path / "run", fedge.TensorBoard(tmp_path / "tb"))
    events = EventAccumulator(str(tmp_path / "tb/run")).Reload()
    assert [e.step for e in events.Scalars("loss")] == [row["round"] for row in result.history]
    assert events.Scalars("loss")[-1].value == pytest.approx(result.final["loss"])
