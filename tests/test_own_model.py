"""A model of one's own by its name: on the command line, in a table of keys and in Python alike."""

import json
import sys
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx
from pydantic import Field
from safetensors.numpy import load_file

import fedge
from fedge.errors import ConfigError, RunError
from fedge.experiment.build import experiment
from fedge.experiment.config import Config
from fedge.models import own
from tests.experiment.test_own import folder  # noqa: F401  (a fixture: mine.npz, 12 inputs and 4 classes)
from tests.test_cli import call, no_figures  # noqa: F401

HERE = __name__
SHORT = {
    "algorithm": "hierfavg", "data": "mine.npz", "partition": "iid", "clients": 4, "cells": 2, "rounds": 1,
    "local_steps": 1, "edge_rounds": 1, "batch": 3, "devices": 1,
}  # fmt: skip
NETS = """
from typing import Annotated
from flax import nnx
from pydantic import Field


class Net(nnx.Module):
    def __init__(self, inputs, width, outputs, rngs):
        self.first, self.last = nnx.Linear(inputs, width, rngs=rngs), nnx.Linear(width, outputs, rngs=rngs)

    def __call__(self, x):
        return self.last({ACTIVATION}(self.first(x)))


def build(shape, outputs, rngs, *, width: Annotated[int, Field(ge=1, le=64, description="hidden units")] = 5):
    return Net(shape[0], width, outputs, rngs)
"""


@pytest.fixture
def here(folder, monkeypatch):  # noqa: F811
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(own, "OWN", {})
    write(folder, "nnx.relu")
    yield folder
    sys.modules.pop("my_nets", None)


def write(folder, activation):  # noqa: F811
    (folder / "my_nets.py").write_text(NETS.replace("{ACTIVATION}", activation))
    sys.modules.pop("my_nets", None)
    own.OWN.clear()


class Small(linen.Module):
    """Linen's way: dropout is told by an argument of the call whether clients train."""

    outputs: int

    @linen.compact
    def __call__(self, x, train: bool):
        x = linen.Dropout(0.5, deterministic=not train)(linen.tanh(linen.Dense(6)(x)))
        return linen.Dense(self.outputs)(x)


class Normed(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(4)(linen.BatchNorm(use_running_average=False)(x))


def as_linen(shape, outputs):
    return Small(outputs)


def as_model(shape, outputs, *, hidden: Annotated[int, Field(ge=1, description="units")] = 3):
    return fedge.from_nnx(
        lambda rngs: nnx.Sequential(nnx.Linear(*shape, hidden, rngs=rngs), nnx.Linear(hidden, outputs, rngs=rngs)),
        input_shape=shape, classes=outputs, name="two layers",
    )  # fmt: skip


def nothing(shape, outputs): ...
def nothing_from_rngs(shape, outputs, rngs): ...
def of_a_rate(shape, outputs, *, lr: float = 0.1): ...
def of_a_cut(shape, outputs, *, cut: int = 1): ...
def without_a_type(shape, outputs, *, width=3): ...
def for_two(knobs): ...


def fails(shape, outputs):
    raise KeyError("colour")


def of_seven(shape, outputs, rngs):
    return nnx.Linear(*shape, 7, rngs=rngs)


def of_images(shape, outputs, rngs):
    return nnx.Conv(1, outputs, (3, 3), rngs=rngs)


def of_batchnorm(shape, outputs):
    return Normed()


def test_command_line_table_and_python_train_the_same_model(here, no_figures, monkeypatch):  # noqa: F811
    monkeypatch.setattr("fedge.view.report.write_report", lambda place: place)
    words = [f"{key}={value}" for key, value in SHORT.items()]
    (here / "keys.toml").write_text('model = "my_nets:build"\nwidth = 9\n')
    told = call("run", "hierfavg", *words[1:], "width=7", "--config", "keys.toml", "--out", "words")
    assert told.exit_code == 0
    by_name = fedge.run(SHORT, model="my_nets:build", width=7, out="name")
    as_function = fedge.run(SHORT, model=sys.modules["my_nets"].build, width=7, out="function")
    kept = [load_file(f"{name}/weights.safetensors") for name in ("words", "name", "function")]
    assert kept[0]["first/kernel"].shape == (12, 7)
    for other in kept[1:]:
        assert all((other[path] == w).all() for path, w in kept[0].items())
    assert by_name.config == as_function.config
    assert by_name.config.declared["width"] == 7
    stored = json.loads((here / "words/run.json").read_text())
    assert stored["objects"]["model"].keys() == {"function", "source", "program"}
    assert stored["config"]["model"] == "my_nets:build"


def test_a_resumed_run_finds_its_model_or_says_what_is_missing(here):
    fedge.run(SHORT, model="my_nets:build", out="one")
    write(here, "nnx.relu  # the same function\n        ")
    assert len(fedge.run(resume="one", rounds=2).history) == 2
    write(here, "nnx.tanh")
    with pytest.raises(RunError, match="my_nets:build no longer gives the model that one was begun with; mend it"):
        fedge.run(resume="one", rounds=3)
    (here / "my_nets.py").write_text("build = 3\n")
    sys.modules.pop("my_nets")
    own.OWN.clear()
    with pytest.raises(RunError, match="one was begun with a function that is not found: model=my_nets:build is a int"):
        fedge.run(resume="one", rounds=3)
    (here / "my_nets.py").unlink()
    sys.modules.pop("my_nets")
    with pytest.raises(RunError, match="is not found: model=my_nets:build: there is no module my_nets in"):
        fedge.run(resume="one", rounds=3)


def test_its_keys_are_swept_and_listed(here):
    """Runs of one sweep share programs and tests on images: two widths must not share theirs."""
    keys = {key: value for key, value in SHORT.items() if key != "algorithm"}
    found = fedge.sweep("hierfavg", keys, model="my_nets:build", width=[4, 9], out="sweep")
    shapes = [load_file(here / "sweep" / name / "weights.safetensors")["first/kernel"].shape for name in found.plan]
    assert shapes == [(12, 4), (12, 9)]
    said = call("keys", "model=my_nets:build", "--format", "json")
    (key,) = json.loads(said.stdout)
    assert (key["name"], key["read_by"], key["default"], key["meaning"]) == (
        "width",
        "my_nets:build",
        5,
        "hidden units",
    )
    assert key["takes"] == "an integer ≥ 1 and ≤ 64"


def test_linen_is_itself_and_drops_out_only_in_training(here):
    made = experiment(Config.of(SHORT | {"model": f"{HERE}:as_linen"})).model
    weights = made.initialise(jax.random.key(0))
    x = jnp.asarray(np.random.default_rng(0).normal(size=(5, 12)), jnp.float32)

    def outputs(train, seed):
        return made(weights, x, train=train, key=jax.random.key(seed))[0]

    tree = {"params": {}}
    for path, w in weights.items():
        _, layer, name = path.split("/")
        tree["params"].setdefault(layer, {})[name] = w
    np.testing.assert_array_equal(outputs(False, 1), Small(4).apply(tree, x, train=False))
    np.testing.assert_array_equal(outputs(False, 1), outputs(False, 2))
    assert np.abs(outputs(True, 1) - outputs(True, 2)).max() > 0.01


def test_a_function_may_return_a_model(here):
    made = experiment(Config.of(SHORT | {"model": as_model, "hidden": 2}))
    assert (made.model.name, made.model.parameters) == ("two layers", 12 * 2 + 2 + 2 * 4 + 4)
    assert made.config.model == f"{HERE}:as_model"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"model": "my_netz:build"}, "there is no module my_netz in .* run fedge where it is, or install it"),
        ({"model": "my_nets:bild"}, "module my_nets has no 'bild'; .* did you mean 'build'"),
        ({"model": "my_nets:build", "width": 0}, "width=0 is not allowed; allowed: an integer ≥ 1 and ≤ 64"),
        ({"model": "my_nets:build", "widht": 9}, "unknown key 'widht' .* did you mean 'width'"),
        ({"model": "mlp", "width": 9}, "unknown key 'width'"),
        ({"model": f"{HERE}:for_two"}, r"a function of \(shape, outputs, rngs\) or \(shape, outputs\): too many"),
        ({"model": f"{HERE}:HERE"}, r"HERE is a str; give a function of \(shape, outputs, rngs\) or"),
        ({"model": f"{HERE}:fails"}, "fails failed, KeyError: 'colour'; mend it"),
        ({"model": f"{HERE}:nothing"}, "nothing returned a NoneType; let it return a fedge.Model"),
        (
            {"model": f"{HERE}:nothing_from_rngs"},
            r"NoneType; a function of \(shape, outputs, rngs\) returns",
        ),
        ({"model": f"{HERE}:of_a_rate"}, "key 'lr' of .*of_a_rate is a key of every run already; give it another name"),
        ({"model": f"{HERE}:of_a_cut", "algorithm": "hiersfl"}, "key 'cut' of .* is a key of hiersfl already"),
        ({"model": f"{HERE}:without_a_type"}, "key 'width' of without_a_type needs a type and a default"),
        ({"model": f"{HERE}:of_images"}, r"model .*of_images cannot take inputs of shape \(12,\)"),
        ({"model": f"{HERE}:of_batchnorm"}, "Normed keeps running statistics .*; take GroupNorm or LayerNorm"),
        ({"model": f"{HERE}:as_linen", "algorithm": "hist"}, "none of its parameters names any; annotate them"),
        ({"model": "my_nets:build", "algorithm": "hist"}, "none of its parameters names any; annotate them"),
        ({"model": "my_nets:build", "algorithm": "hiersfl"}, "give its module an attribute `stages`"),
        ({"model": "my_nets:build", "dropout": 0.5}, "dropout=0.5 is only for model=mlp or model=cnn"),
    ],
)
def test_what_cannot_be_gets_one_sentence(here, keys, message):
    with pytest.raises(ConfigError, match=message):
        experiment(Config.of(SHORT | keys))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Small(4), "is a Small that was made already; wrap it, fedge.from_linen"),
        (
            nnx.Linear(12, 4, rngs=nnx.Rngs(0)),
            r"is a Linear that was made .*, of \(shape, outputs, rngs\), or",
        ),
        (as_model((12,), 4), r"is a Model that was made already; pass it by itself, as in fedge.run\(model=model"),
        (lambda shape, outputs: None, "the model .* has no name to be found by again; define it at the top of a file"),
        ([1], r"model=\[1\] is not allowed; allowed: mlp, .*, package.module:function"),
    ],
)
def test_what_is_no_function_is_told_how_to_become_one(model, message):
    with pytest.raises(ConfigError, match=message):
        Config.of(SHORT | {"model": model})


def test_outputs_that_do_not_fit_the_task(here):
    x = np.eye(12)
    np.savez("real.npz", x_train=x, y_train=x[0], x_test=x, y_test=x[0])
    keys = SHORT | {"data": "real.npz", "task": "regression", "model": f"{HERE}:of_seven"}
    with pytest.raises(ConfigError, match=r"of_seven gives \(7,\) for each input, but there are 1 numbers to predict"):
        experiment(Config.of(keys))
    few = Config.of(SHORT | {"data": "many.npz", "model": f"{HERE}:of_seven"})
    np.savez("many.npz", x_train=x, y_train=np.arange(12), x_test=x, y_test=np.arange(12))
    with pytest.raises(ConfigError, match=r"of_seven gives \(7,\) for each input, but there are 12 classes"):
        experiment(few)
