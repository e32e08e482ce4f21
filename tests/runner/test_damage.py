"""What a run is resumed from is what it wrote, or it is refused: nothing is continued with another result."""

import json
import os
import shutil

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import fedge
from fedge.cli import app
from fedge.data import load
from fedge.errors import ConfigError, DivergenceError, RunError
from fedge.models import from_nnx
from fedge.runner import checkpoint, environment, files, identity, inspect
from fedge.runner.cache import ProgramCache
from fedge.studies.compare import read_plan, write_plan
from tests.helpers import toy

KEYS = {"algorithm": "hierfavg", "clients": 4, "cells": 2, "rounds": 3, "local_steps": 1, "edge_rounds": 1, "batch": 5,
        "checkpoint_every": 1}  # fmt: skip
FILES = ("metrics.jsonl", "weights.safetensors", "ledger.json")
CACHE = ProgramCache()


def resume(folder, **keys):
    return fedge.run(resume=folder, cache=CACHE, **keys)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "finished"
    fedge.run(KEYS, out=folder, cache=CACHE)
    return folder


@pytest.fixture
def copy(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "copy")
    return tmp_path / "copy"


def same(a, b):
    return all((a / name).read_bytes() == (b / name).read_bytes() for name in FILES)


@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
@example(place=6.103515625e-05, bit=0)  # in the notes, which are JSON inside the header's JSON
@settings(max_examples=25)
def test_a_flipped_bit_costs_the_rounds_since_the_checkpoint_before(finished, place, bit):
    """Anywhere in the newest checkpoint: in its header, or in a number."""
    folder = finished.parent / "flipped"
    shutil.copytree(finished, folder)
    path = folder / checkpoint.NEWEST
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    path.write_bytes(content)
    try:
        with pytest.raises(RunError, match=r"cannot be read|is not as it was written|is damaged"):
            inspect.verify(folder)
        resume(folder)
        assert same(folder, finished)
    finally:
        shutil.rmtree(folder)


def test_a_damaged_checkpoint_is_said_and_two_are_too_many(copy, finished, caplog):
    newest, before = copy / checkpoint.NEWEST, copy / checkpoint.BEFORE
    newest.write_bytes(newest.read_bytes()[:-1])
    resume(copy)
    assert "going on from the one before it, after round 2" in caplog.text
    assert same(copy, finished)
    for path in (newest, before):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(RunError, match=r"checkpoint.safetensors cannot be read .*; no other checkpoint is there"):
        resume(copy)


@pytest.mark.parametrize("other", [{"seed": 1}, {"lr": 0.02}, {"algorithm": "hfedavg"}])
def test_a_checkpoint_of_another_run_is_refused(copy, other, tmp_path):
    fedge.run(KEYS | other, out=tmp_path / "other", cache=CACHE)
    shutil.copyfile(tmp_path / "other" / checkpoint.NEWEST, copy / checkpoint.NEWEST)
    with pytest.raises(RunError, match=r"checkpoint.safetensors belongs to another run"):
        resume(copy)


@pytest.mark.parametrize(
    ("key", "value"),
    [("lr", 0.2), ("seed", 1), ("batch", 6), ("data", "mnist"), ("partition", "iid"), ("rounds", 80), ("extra", 1)],
)
def test_an_edited_configuration_is_refused_with_the_difference(copy, key, value):
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {key: value}))
    with pytest.raises(RunError, match=rf"config.json was changed since the run began \({key}: .* → {value}\)"):
        resume(copy)
    about = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps(about | {"config": config | {key: value}}))
    if key != "rounds":
        with pytest.raises(RunError, match=r"run.json was changed since the run was begun: its identity does not hold"):
            resume(copy)


def test_edited_metrics_are_refused(copy):
    text = (copy / "metrics.jsonl").read_text()
    row = json.loads(text.splitlines()[0])
    better = json.dumps(row | {"accuracy": row["accuracy"] + 0.1})
    (copy / "metrics.jsonl").write_text("\n".join([better, *text.splitlines()[1:]]) + "\n")
    with pytest.raises(RunError, match=r"metrics.jsonl is not as it was written up to round 3"):
        resume(copy)


BAD = [
    b"[]", b"null", b"3", b'"x"', b"{}", b"", b"\xff\xfe\x00", b"[" * 100_000, b'{"round": NaN}', b'{"round": 1e999}',
    b'{"round": true}', b'{"round": ' + b"9" * 5000 + b"}",
]  # fmt: skip


@pytest.mark.parametrize("name", ["run.json", "config.json", "metrics.jsonl", "result.json"])
def test_malformed_json_gets_one_sentence(copy, name):
    for content in BAD:
        (copy / name).write_bytes(content + b"\n")
        with pytest.raises(RunError) as caught:
            resume(copy)
        assert "\n" not in str(caught.value)
        assert name in str(caught.value)
        assert len(str(caught.value)) < 700


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(
    st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()),
    st.sampled_from(["run.json", "result.json", "metrics.jsonl"]),
)
@settings(max_examples=30)
def test_no_content_of_a_record_is_a_traceback(finished, content, name):
    folder = finished.parent / "junk"
    shutil.copytree(finished, folder)
    try:
        (folder / name).write_bytes(content)
        for reading in (resume, inspect.verify):
            try:
                reading(folder)
            except RunError as problem:
                assert "\n" not in str(problem)  # noqa: PT017
    finally:
        shutil.rmtree(folder)


def test_a_finished_run_without_its_result_is_finished_again(copy, finished):
    for names in (["result.json", "ledger.json", "config.json"], ["weights.safetensors"]):
        for name in names:
            (copy / name).unlink()
        assert len(resume(copy).history) == 3
        assert same(copy, finished)
        assert inspect.verify(copy)


def test_a_run_is_extended_on_purpose(copy, tmp_path):
    """To the bits of one that was to be as long from the start, rows included."""
    keys = KEYS | {"eval_every": 2}
    fedge.run(keys | {"rounds": 6}, out=tmp_path / "whole", cache=CACHE)
    fedge.run(keys, out=tmp_path / "short", cache=CACHE)
    assert [row["round"] for row in resume(tmp_path / "short", rounds=6).history] == [2, 4, 6]
    assert same(tmp_path / "short", tmp_path / "whole")
    assert (tmp_path / "short/config.json").read_bytes() == (tmp_path / "whole/config.json").read_bytes()


def test_a_pipe_in_place_of_a_file_is_not_waited_for(copy):
    """To verify it, result.json and ledger.json were read whatever they were: a link to /dev/zero filled the memory."""
    for name in ("result.json", "ledger.json"):
        (copy / name).unlink()
        os.mkfifo(copy / name)
        with pytest.raises(RunError, match=rf"{name} is missing"):
            inspect.verify(copy)
    with pytest.raises(RunError, match=r"result.json is missing"):
        resume(copy)


def test_an_extension_that_is_refused_changes_nothing(copy, finished):
    """Fewer rounds than are done: the record was rewritten to say so, and could not be resumed as it was."""
    with pytest.raises(RunError, match="already holds 3 rounds, more than the run is to have"):
        resume(copy, rounds=2)
    assert all((copy / f).read_bytes() == (finished / f).read_bytes() for f in ("run.json", "config.json"))
    assert len(resume(copy).history) == 3


def test_a_diverged_run_that_is_resumed_stays_as_it_was_written(tmp_path):
    folder, keys = tmp_path / "x", KEYS | {"lr": 1e20}
    for attempt in (lambda: fedge.run(keys, out=folder, cache=CACHE), lambda: resume(folder)):
        with pytest.raises(DivergenceError):
            attempt()
        assert "metrics.jsonl" in inspect.verify(folder)


def test_a_run_whose_checkpoints_are_gone_says_that_it_begins_again(copy, finished, caplog):
    for name in (checkpoint.NEWEST, checkpoint.BEFORE):
        (copy / name).unlink()
    resume(copy)
    assert "beginning again at its first round" in caplog.text
    assert same(copy, finished)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"layout": {"devices": "2"}}, "its layout is no numbers"), ({"digests": [1]}, "lacks digests")],
)
def test_an_entry_of_another_kind_gets_one_sentence(copy, change, said):
    about = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps(about | change))
    for reading in (resume, inspect.verify, inspect.summary):
        with pytest.raises(RunError, match=said):
            reading(copy)


def test_an_edited_comparison_is_refused(tmp_path):
    """Runs that had not begun were made with the edited keys, beside those that had; without any run it was a crash."""
    plan = {name: {"algorithm": name, "lr": 0.1} for name in ("fedavg", "hierfavg")}
    write_plan(tmp_path, plan)
    assert read_plan(tmp_path) == plan
    stored = json.loads((tmp_path / "compare.json").read_text())
    faster = plan | {"hierfavg": {"algorithm": "hierfavg", "lr": 0.2}}
    for runs, said in (({}, "names no runs"), ([], "names no runs"), (faster, "was changed since"),
                       ({"fedavg": plan["fedavg"]}, "was changed since")):  # fmt: skip
        (tmp_path / "compare.json").write_text(json.dumps(stored | {"runs": runs}))
        with pytest.raises(RunError, match=f"compare.json .*{said}"):
            fedge.compare(resume=tmp_path)


def test_a_comparison_is_no_run_that_was_stopped_before_it_began(tmp_path):
    for name in (files.LOCK, "compare.json"):
        (tmp_path / name).touch()
    with pytest.raises(RunError, match=r"run.json is missing; .* does not hold a run"):
        resume(tmp_path)


def test_a_run_from_a_larger_machine_goes_on_with_the_devices_there_are(copy, caplog):
    about = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps(about | {"layout": {"devices": 500, "chunk": 7}}))
    assert len(resume(copy, rounds=4).history) == 4
    assert "layout (devices, chunk) differ from when" in caplog.text


def test_another_layout_is_said(copy, finished, caplog):
    assert len(resume(copy, rounds=4, devices=1).history) == 4
    assert "layout (devices, chunk) differ from when" in caplog.text


def test_another_checkout_is_said_and_noted(copy, finished, caplog, monkeypatch):
    """The identity names the code that began the run; other code goes on with it, aloud, and run.json says so."""
    resume(copy)
    assert not caplog.text
    for module in (environment, identity):
        monkeypatch.setattr(module, "code_digest", lambda: "another")
    resume(copy, rounds=4)
    assert f"code differ from when {copy} was begun: results may differ\n" in caplog.text
    about = json.loads((copy / "run.json").read_text())
    assert about["code"] == json.loads((finished / "run.json").read_text())["code"]
    assert [(entry["code"], entry["changed"]) for entry in about["continued"]] == [("another", ["code"])]
    assert inspect.verify(copy)


def test_a_checkpoint_of_another_checkout_is_refused(copy, tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "code_digest", lambda: "another")
    fedge.run(KEYS, out=tmp_path / "other", cache=CACHE)
    shutil.copyfile(tmp_path / "other" / checkpoint.NEWEST, copy / checkpoint.NEWEST)
    with pytest.raises(RunError, match=r"checkpoint.safetensors belongs to another run"):
        resume(copy)


def test_the_code_digest_is_of_every_source_file(tmp_path, monkeypatch):
    """A line, a name or a file more is other code; what Python leaves beside its files is not."""
    for name in ("runner/identity.py", "a.py", "core/b.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    monkeypatch.setattr(identity, "__file__", str(tmp_path / "runner/identity.py"))
    found = [identity.code_digest.__wrapped__()]
    (tmp_path / "core/b.pyc").touch()
    assert identity.code_digest.__wrapped__() == found[0]
    (tmp_path / "core/b.py").write_text("x = 2\n")
    found.append(identity.code_digest.__wrapped__())
    (tmp_path / "core/b.py").rename(tmp_path / "core/c.py")
    found.append(identity.code_digest.__wrapped__())
    (tmp_path / "d.py").touch()
    found.append(identity.code_digest.__wrapped__())
    assert len(set(found)) == 4


def net(activation):
    class Net(nnx.Module):
        def __init__(self, rngs):
            self.fc1, self.fc2 = nnx.Linear(25, 6, rngs=rngs), nnx.Linear(6, 4, rngs=rngs)

        def __call__(self, x):
            return self.fc2(activation(self.fc1(x.reshape(len(x), -1))))

    return from_nnx(Net, input_shape=(5, 5, 1), classes=4)


def test_other_objects_are_refused(tmp_path):
    """An optimiser with another constant, a model with another activation, data with another label."""
    mine = {"dataset": toy(), "model": net(nnx.relu), "optimiser": optax.adam}
    fedge.run(KEYS, out=tmp_path / "run", **mine)
    for name, other, what in (
        ("optimiser", lambda lr: optax.adam(lr, b1=0.8), "optimiser"),
        ("model", net(nnx.tanh), "model"),
        ("dataset", fedge.Dataset.of(*relabelled()), "data set"),
    ):
        with pytest.raises(RunError, match=f"the {what} passed in is not the one .* was begun with"):
            fedge.run(resume=tmp_path / "run", **mine | {name: other})
    with pytest.raises(ConfigError, match="optimizer=custom means an object passed in"):
        fedge.run(resume=tmp_path / "run", **mine | {"optimiser": None})
    again = {"dataset": toy(), "model": net(nnx.relu), "optimiser": optax.adam}
    assert len(fedge.run(resume=tmp_path / "run", **again).history) == 3


def relabelled():
    data = toy()
    data.y_train[0] = (data.y_train[0] + 1) % 4
    return data.x_train, data.y_train, data.x_test, data.y_test


def test_data_under_a_known_name_is_that_data(tmp_path):
    """Arrays that call themselves fashion-mini are recorded under the name only if they are it."""
    known = load("fashion-mini")
    assert identity.is_known(known)
    assert fedge.run(KEYS, out=tmp_path / "a", dataset=known, cache=CACHE, rounds=1).config.data == "fashion-mini"
    labels = known.y_train.copy()
    labels[0] = (labels[0] + 1) % 10
    wrong = fedge.Dataset("fashion-mini", known.x_train, labels, known.x_test, known.y_test, 10, known.scale)
    assert fedge.run(KEYS, out=tmp_path / "b", dataset=wrong, rounds=1).config.data == "custom"
    assert json.loads((tmp_path / "b/run.json").read_text())["objects"]["data"]["y_train"]


def test_scalar_leaves_survive(tmp_path):
    state = {"weights": {"a": jnp.ones((2, 3))}, "step": jnp.int32(7), "moment": jnp.float32(0.5)}
    checkpoint.save(tmp_path, state, checkpoint.Notes(1, "x", "y", "z"))
    back, notes = checkpoint.load(tmp_path / checkpoint.NEWEST, state)
    assert notes == checkpoint.Notes(1, "x", "y", "z")
    assert [back["step"].shape, back["moment"].shape] == [(), ()]
    assert (int(back["step"]), float(back["moment"])) == (7, 0.5)
    assert back["step"].dtype == np.int32


def test_one_writer_in_a_folder(copy):
    with files.locked(copy):
        assert files.is_locked(copy)
        for attempt in (lambda: resume(copy), lambda: fedge.run(KEYS, out=copy)):
            with pytest.raises(RunError, match=r"another process is writing to|already holds a run"):
                attempt()
    assert not files.is_locked(copy)
    assert len(resume(copy).history) == 3


def test_what_cannot_be_continued_is_not_begun_again(tmp_path):
    class Stop(fedge.Listener):
        def tested(self, row, config):
            if row["round"] == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedge.run(KEYS | {"checkpoint_every": 0}, out=tmp_path / "x", listener=Stop(), cache=CACHE)
    assert json.loads((tmp_path / "x/run.json").read_text())["state"] == "stopped"
    before = (tmp_path / "x/metrics.jsonl").read_bytes()
    with pytest.raises(RunError, match="checkpoint_every=0, so there is no state to go on from"):
        resume(tmp_path / "x")
    assert (tmp_path / "x/metrics.jsonl").read_bytes() == before


def test_show_says_what_a_folder_holds(copy):
    """Also of a run whose process died, and of one that was changed."""

    def show(*words):
        return CliRunner().invoke(app, ["show", str(copy), *words])

    good = show("--verify")
    assert good.exit_code == 0, good.output
    assert "hierfavg, finished" in good.stdout
    assert "round 3 of 3: accuracy" in good.stdout
    assert "checkpoint.safetensors, after round 3" in good.stdout
    about = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps(about | {"state": "running"}))
    assert json.loads(show("--format", "json").stdout)["state"] == "lost"
    (copy / "run.json").write_text(json.dumps(about))
    (copy / "ledger.json").write_text("{}")
    bad = show("--verify")
    assert (bad.exit_code, bad.stdout) == (4, "")
    assert "ledger.json is not as it was written" in bad.stderr
