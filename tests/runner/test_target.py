"""A target ends a run; what is said of it is what a walk over the rows of a run without one finds."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedge
from fedge.errors import ConfigError, RunError
from fedge.experiment.target import Target
from fedge.runner.cache import ProgramCache
from fedge.runner.inspect import summary
from fedge.runner.result import target_columns
from fedge.view import terminal
from tests.helpers import small, toy

KEYS = {"algorithm": "hierfavg", "clients": 6, "cells": 2, "rounds": 6, "batch": 5, "checkpoint_every": 2, "lr": 0.1}
CACHE = ProgramCache()


def start(folder, **keys):
    return fedge.run(KEYS | keys, out=folder, dataset=toy(), cache=CACHE)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return start(tmp_path_factory.mktemp("whole") / "run")


def losses(result):
    return [row["loss"] for row in result.history]


def between(result, number):
    """Return a training loss that the rounds before `number` have not come down to, and that one has."""
    values = [row["train_loss"] for row in result.history]
    assert min(values[: number - 1]) > values[number - 1]
    return (min(values[: number - 1]) + values[number - 1]) / 2


@pytest.mark.parametrize("number", [3, 4])
def test_a_run_ends_at_its_target(tmp_path, whole, number):
    """Round 3 lies between two checkpoints and round 4 is one."""
    goal = between(whole, number)
    result = start(tmp_path / "run", target=goal, target_metric="train_loss")
    assert result.history == whole.history[:number]
    row = result.final
    assert result.reached._asdict() == {
        "metric": "train_loss", "target": goal, "mean_of": 1, "value": row["train_loss"], "round": number,
        "iteration": 20 * number, "simulated_seconds": row["simulated_seconds"], "bytes": row["bytes"],
    }  # fmt: skip
    stored = json.loads((tmp_path / "run/result.json").read_text())
    assert stored["reached"] == result.reached._asdict()
    assert target_columns(stored) == {
        "target_round": number, "target_iteration": 20 * number, "target_seconds": row["simulated_seconds"],
        "target_bytes": sum(row["bytes"].values()),
    }  # fmt: skip
    assert f"train_loss {goal} reached after round {number}" in terminal.run_lines(summary(tmp_path / "run"))


def test_a_target_that_is_not_reached_is_told_apart(tmp_path, whole):
    never = start(tmp_path / "run", target=1.0)
    assert never.reached is None
    assert never.history == whole.history
    assert target_columns(never.to_json()) == dict.fromkeys(
        ["target_round", "target_iteration", "target_seconds", "target_bytes"]
    )
    assert target_columns(whole.to_json()) == {}
    column = terminal.result_table([never]).columns[3]
    assert (column.header, *map(str, column.cells)) == ("accuracy 1", "not reached")
    assert terminal.result_table([whole]).columns[3].header == "simulated s"


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_run_with_a_target_resumes_to_the_same_end(tmp_path, whole, stop):
    class Stop(fedge.Listener):
        def tested(self, row, config):
            if row["round"] == stop:
                raise KeyboardInterrupt

    keys = KEYS | {"target": between(whole, 3), "target_metric": "train_loss"}
    with pytest.raises(KeyboardInterrupt):
        fedge.run(keys, out=tmp_path / "cut", dataset=toy(), cache=CACHE, listener=Stop())
    resumed = fedge.run(resume=tmp_path / "cut", dataset=toy(), cache=CACHE)
    assert resumed.history == whole.history[:3]
    assert resumed.reached.round == 3
    again = fedge.run(resume=tmp_path / "cut", dataset=toy(), cache=CACHE)
    assert (again.history, again.reached) == (resumed.history, resumed.reached)


def test_a_run_goes_on_to_another_target_and_beyond(tmp_path, whole):
    first, second = between(whole, 3), between(whole, 5)
    start(tmp_path / "run", target=first, target_metric="train_loss")
    further = fedge.run(resume=tmp_path / "run", dataset=toy(), cache=CACHE, target=second)
    assert (further.reached.round, further.history) == (5, whole.history[:5])
    with pytest.raises(RunError, match=r"already holds 5 rounds, and train_loss was at target=.* after round 3; give"):
        fedge.run(resume=tmp_path / "run", dataset=toy(), cache=CACHE, target=first)
    end = fedge.run(resume=tmp_path / "run", dataset=toy(), cache=CACHE, target=1e-9)
    assert (end.reached, end.history) == (None, whole.history)


def test_long_columns_are_in_the_row_at_the_target(tmp_path, monkeypatch, whole):
    monkeypatch.setattr("fedge.runner.per_group.IN_EVERY_ROW", 2)
    goal = {"target": between(whole, 3), "target_metric": "train_loss"}
    result = start(tmp_path / "run", metrics="clients", **goal)
    assert ["client_accuracies" in row for row in result.history] == [False, False, True]


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=12), st.integers(1, 4), st.booleans())
def test_reached_is_the_first_of_the_means(values, mean_of, higher):
    rows = [{"x": v, "round": n, "iteration": 2 * n, "simulated_seconds": 3.0 * n, "bytes": {"up": n}}
            for n, v in enumerate(values, 1)]  # fmt: skip
    target, first = Target("x", 0.5, mean_of, higher), None
    for n in range(len(values)):
        window = values[max(0, n + 1 - mean_of) : n + 1]
        if len(window) == mean_of and None not in window:
            mean = sum(window) / mean_of
            if (mean >= 0.5 if higher else mean <= 0.5) and first is None:
                first = n + 1
    found = target.reached(rows)
    assert (found and found.round) == first
    assert first is None or target.is_met(rows[:first])
    assert not any(target.is_met(rows[:n]) for n in range(first or len(rows) + 1))


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"target": 1.5}, r"target=1\.5 is no accuracy that a run could reach; give a number above 0 and up to 1"),
        ({"target": 0}, "target=0 is no accuracy that a run could reach"),
        ({"target": 2, "target_metric": "macro_f1", "metrics": "f1"}, "target=2 is no macro_f1"),
        ({"target": 0.5, "target_metric": "macro_f1"}, "target_metric=macro_f1 is not recorded by this run; .*f1"),
        ({"target": 0.5, "target_metric": "acuracy"}, "did you mean 'accuracy'"),
        ({"target": 0.5, "target_metric": "edge_accuracy"}, "target_metric=edge_accuracy is not recorded"),
        ({"target_mean": 3}, "target_mean=3 is only for target=NUMBER; leave target_mean out"),
        ({"target": "0,8"}, "target=0,8 is no number to reach, and a column only of data=FILE.csv"),
        ({"target": "nan"}, "target=nan is not allowed; allowed: a number"),
        ({"target": 0.5, "target_mean": 0}, "target_mean=0 is not allowed"),
    ],
    ids=str,
)
def test_targets_that_cannot_be(keys, sentence):
    with pytest.raises(ConfigError, match=sentence):
        small(**keys)


def test_what_may_be_a_target():
    assert small(algorithm="sdfeel", target=0.5, target_metric="edge_accuracy").target.higher_is_better
    assert not small(algorithm="sdfeel", target=0.5, target_metric="consensus").target.higher_is_better
    assert not small(target=0.5, target_metric="objective", train_eval=True).target.higher_is_better
    assert small(target=0.5, target_metric="worst_tenth_accuracy", metrics="clients").target.higher_is_better
    assert small(target="0.5").target == Target("accuracy", 0.5, 1, True)
