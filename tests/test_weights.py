"""Weights by name: from PyTorch's layouts and back, and a run that starts from them."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.lib.stride_tricks import sliding_window_view

import fedge
from fedge.errors import ConfigError, DataError, RunError
from fedge.experiment.build import experiment
from fedge.experiment.config import Config
from fedge.models import from_nnx, make
from fedge.models.weights import require_fit
from tests.experiment.test_own import folder  # noqa: F401  (a fixture: mine.npz, 12 inputs and 4 classes)
from tests.helpers import shallow

SHORT = {
    "algorithm": "hierfavg", "data": "mine.npz", "partition": "iid", "clients": 4, "cells": 2, "rounds": 1,
    "local_steps": 1, "edge_rounds": 1, "batch": 3, "devices": 1,
}  # fmt: skip
CNN = make("cnn", (16, 16, 1), 4)
MLP = make("mlp", (5, 5, 1), 4)


def drawn(seed, **shapes):
    rng = np.random.default_rng(seed)
    return {name.replace("__", "."): rng.normal(size=shape).astype(np.float32) / 4 for name, shape in shapes.items()}


def outputs(model, weights, x):
    given = {path: jnp.asarray(w) for path, w in weights.items()}
    return np.asarray(model(given, jnp.asarray(x), train=False, key=jax.random.key(0))[0])


# PyTorch's layers, written in numpy as its documentation states them


def conv2d(x, w, b):
    """out[n, o] = b[o] + Σ_i x[n, i] ⋆ w[o, i], over B × C × H × W images."""
    windows = sliding_window_view(x, w.shape[2:], axis=(2, 3))  # n, i, r, s, h, w
    return np.einsum("nirshw,oihw->nors", windows, w) + b[:, None, None]


def max_pool(x):
    n, c, h, w = x.shape
    return x[:, :, : h // 2 * 2, : w // 2 * 2].reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))


def linear(x, w, b):
    return x @ w.T + b


def relu(x):
    return np.maximum(x, 0)


def cnn_of_torch(s, images):
    """Images are channels first, and flattened as C × H × W."""
    x = relu(max_pool(conv2d(images.transpose(0, 3, 1, 2), s["conv1.weight"], s["conv1.bias"])))
    x = relu(max_pool(conv2d(x, s["conv2.weight"], s["conv2.bias"])))
    x = relu(linear(x.reshape(len(x), -1), s["fc1.weight"], s["fc1.bias"]))
    return linear(x, s["fc2.weight"], s["fc2.bias"])


def state_of_cnn(flat=20):
    return drawn(0, conv1__weight=(10, 1, 5, 5), conv1__bias=(10,), conv2__weight=(20, 10, 5, 5), conv2__bias=(20,),
                 fc1__weight=(50, flat), fc1__bias=(50,), fc2__weight=(4, 50), fc2__bias=(4,))  # fmt: skip


def test_a_cnn_computes_what_pytorchs_does():
    """At 20 × 20 what is flattened has 2 × 2 pixels, so a wrong order is seen."""
    state, model = state_of_cnn(80), make("cnn", (20, 20, 1), 4)
    x = np.random.default_rng(1).normal(size=(3, 20, 20, 1)).astype(np.float32)
    found = fedge.weights_from_torch(state, model, flattened={"fc1": (2, 2, 20)})
    np.testing.assert_allclose(outputs(model, found, x), cnn_of_torch(state, x), atol=2e-5)
    unturned = fedge.weights_from_torch(state, model, flattened={})
    assert np.abs(outputs(model, unturned, x) - cnn_of_torch(state, x)).max() > 0.1


def test_an_mlp_of_other_names_computes_what_pytorchs_does():
    """nn.Sequential calls its layers 0, 1, 2; images of one channel are flattened alike on both sides."""
    state = drawn(2, **{"1__weight": (300, 25), "1__bias": (300,), "3__weight": (4, 300), "3__bias": (4,)})
    x = np.random.default_rng(3).normal(size=(3, 5, 5, 1)).astype(np.float32)
    found = fedge.weights_from_torch(state, MLP, names={"fc1": "1", "fc2": "3"})
    hidden = relu(linear(x.reshape(3, -1), state["1.weight"], state["1.bias"]))
    np.testing.assert_allclose(outputs(MLP, found, x), linear(hidden, state["3.weight"], state["3.bias"]), atol=2e-5)


@pytest.mark.parametrize("kind", ["cnn", "resnet"])
def test_there_and_back_is_the_same_to_the_bit(kind, tmp_path):
    model, flattened = (make("cnn", (20, 20, 1), 4), {"fc1": (2, 2, 20)}) if kind == "cnn" else (shallow("avg_all"), {})
    rng = np.random.default_rng(4)
    weights = {p: rng.normal(size=model.template[p].shape).astype(np.float32) for p in model.travelling}
    theirs = fedge.weights_to_torch(weights, model, flattened=flattened)
    fedge.save_weights(tmp_path / "net.safetensors", theirs)
    kept = fedge.load_weights(tmp_path / "net.safetensors")
    if kind == "resnet":
        assert kept["stem_norm.running_var"].shape == (32,)
        kept["stem_norm.num_batches_tracked"] = np.array(7)  # PyTorch counts; nothing is computed from it
    back = fedge.weights_from_torch(kept, model, flattened=flattened)
    assert back.keys() == weights.keys()
    for path, w in weights.items():
        np.testing.assert_array_equal(back[path], w)


def test_other_ranks_and_embeddings():
    """A convolution along one axis: W × I × O here, O × I × W there; embeddings are alike."""

    class Text(nnx.Module):
        def __init__(self, rngs):
            self.embed, self.conv = nnx.Embed(7, 3, rngs=rngs), nnx.Conv(3, 5, (4,), rngs=rngs)

        def __call__(self, x):
            return self.conv(self.embed(x)).mean(1)

    model = from_nnx(lambda rngs: Text(rngs), input_shape=(6,), classes=5)
    state = drawn(5, embed__weight=(7, 3), conv__weight=(5, 3, 4), conv__bias=(5,))
    found = fedge.weights_from_torch(state, model)
    assert found["conv/kernel"].shape == (4, 3, 5)
    assert found["conv/kernel"][1, 2, 3] == state["conv.weight"][3, 2, 1]
    np.testing.assert_array_equal(found["embed/embedding"], state["embed.weight"])


def test_arrays_that_are_not_in_order_are_written_as_they_are(tmp_path):
    """safetensors writes the memory of a transposed array, and not what it holds."""
    turned, single = np.arange(6.0).reshape(2, 3).T, np.array(3.0)
    fedge.save_weights(tmp_path / "x.safetensors", {"turned": turned, "single": single})
    found = fedge.load_weights(tmp_path / "x.safetensors")
    np.testing.assert_array_equal(found["turned"], turned)
    assert found["single"].shape == ()


@pytest.mark.parametrize(
    ("change", "given", "error", "message"),
    [
        ({}, {}, ConfigError, r"cnn has convolutions and linear layers, .*; say which of fc1, fc2 takes a flattened"),
        ({}, {"flattened": {"fc3": (1, 1, 20)}}, ConfigError, "flattened has 'fc3' .* is no linear layer of cnn"),
        ({}, {"flattened": {"fc1": (2, 2, 20)}}, ConfigError, r"\(2, 2, 20\), and that takes 20 numbers; give its"),
        ({}, {"flattened": {}, "names": {"fc9": "x"}}, ConfigError, "names has 'fc9', .*conv1, .*did you mean 'fc"),
        ({"fc1.weight": None}, {"flattened": {}}, DataError, "has no 'fc1.weight', which cnn needs"),
        ({"fc1.wait": 1.0}, {"flattened": {}}, DataError, "has 'fc1.wait', which is no weight of cnn; leave it out"),
        ({"fc1.weight": np.ones((50, 21))}, {"flattened": {}}, DataError, r"\(50, 21\), and 'fc1/kernel' .*\(50, 20\)"),
    ],
)
def test_what_is_not_this_models_is_refused(change, given, error, message):
    state = {name: w for name, w in (state_of_cnn() | change).items() if w is not None}
    with pytest.raises(error, match=message):
        fedge.weights_from_torch(state, CNN, **given)


def test_a_parameter_that_pytorch_has_no_layer_for():
    class Odd(nnx.Module):
        def __init__(self, rngs):
            self.gate = nnx.Param(jnp.ones(3))

        def __call__(self, x):
            return x * self.gate[...]

    with pytest.raises(ConfigError, match="'gate' of custom has no layout in PyTorch that fedge knows"):
        fedge.weights_from_torch({}, from_nnx(Odd, input_shape=(3,), classes=3))


# A run that starts from weights


def of_mlp(seed=6, dtype=np.float32):
    return {
        path: (np.random.default_rng(seed).normal(size=shape) / 4).astype(dtype)
        for path, shape in
        {"fc1/kernel": (12, 300), "fc1/bias": (300,), "fc2/kernel": (300, 4), "fc2/bias": (4,)}.items()
    }  # fmt: skip


def test_a_run_starts_from_a_file_or_from_arrays(folder):  # noqa: F811
    fedge.save_weights("start.safetensors", of_mlp())
    by_file = fedge.run(SHORT, init="start.safetensors", out="file")
    by_array = fedge.run(SHORT, init=of_mlp(), out="arrays")
    for path, w in of_mlp().items():
        np.testing.assert_array_equal(by_file.experiment.start[path], w)
        np.testing.assert_array_equal(by_file.weights[path], by_array.weights[path])
    moved = np.abs(by_file.weights["fc1/kernel"] - of_mlp()["fc1/kernel"]).max()
    assert 1e-5 < moved < 0.1  # trained, and from there
    objects = json.loads((folder / "file/run.json").read_text())["objects"]
    assert objects["init"].keys() == {"file", "sha256"}
    onwards = experiment(Config.of(SHORT | {"init": "file/weights.safetensors"}))  # what a run leaves is what one takes
    np.testing.assert_array_equal(onwards.start["fc1/bias"], by_file.weights["fc1/bias"])


def test_a_resumed_run_has_its_first_weights_or_says_which_it_lacks(folder):  # noqa: F811
    fedge.save_weights("start.safetensors", of_mlp())
    fedge.run(SHORT, init="start.safetensors", out="one")
    assert len(fedge.run(resume="one", rounds=2).history) == 2
    fedge.save_weights("start.safetensors", of_mlp(7))
    with pytest.raises(RunError, match=r"init=start.safetensors is not what one was begun with \(SHA-256 .*; restore"):
        fedge.run(resume="one", rounds=3)
    (folder / "start.safetensors").unlink()
    with pytest.raises(RunError, match=r"init=start.safetensors, which one was begun with, is not in .*; put it back"):
        fedge.run(resume="one", rounds=3)
    fedge.run(SHORT, init=of_mlp(), out="two")
    with pytest.raises(ConfigError, match="init=custom means an object passed in from Python; pass it"):
        fedge.run(resume="two", rounds=2)
    with pytest.raises(RunError, match="the set of initial weights passed in is not the one two was begun with"):
        fedge.run(resume="two", rounds=2, init=of_mlp(7))
    assert len(fedge.run(resume="two", rounds=2, init=of_mlp()).history) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fc1/kernel": None, "fc1/kernels": np.ones(3)}, "has no 'fc1/kernel', .*; did you mean 'fc1/kernels'"),
        ({"fc1/kernel": None, "x": np.ones(3)}, "has no 'fc1/kernel', which mlp needs; it holds x$"),
        ({"fc1/kernel": None}, "has no 'fc1/kernel', which mlp needs; give weights of such a model$"),
        ({"fc3/bias": np.ones(3)}, "has 'fc3/bias', which is no weight of mlp; leave it out"),
        ({"fc1/bias": np.ones(3, np.float32)}, r"'fc1/bias' of shape \(3,\), and that of mlp is \(300,\)$"),
        (
            {"fc1/kernel": np.ones((300, 12), np.float32)},
            r"\(12, 300\); PyTorch's layout is turned by fedge\.weig",
        ),
        (
            {"fc1/bias": np.ones(300)},
            "in float64, which float32 does not hold exactly; convert it, or give",
        ),
        ({"fc1/bias": np.ones(300, np.int8)}, "'fc1/bias' in int8, which float32 does not"),
        ({"fc1/bias": np.full(300, np.nan, np.float32)}, "numbers in 'fc1/bias' that are not finite"),
    ],
)
def test_weights_that_do_not_fit(change, message):
    weights = {path: w for path, w in (of_mlp() | change).items() if w is not None}
    with pytest.raises(DataError, match=f"^init=x {message}" if message.startswith("has") else message):
        require_fit("init=x", weights, make("mlp", (12,), 4), "float32")


def test_narrower_numbers_are_held_exactly():
    kept = require_fit("x", of_mlp(dtype=np.float16), make("mlp", (12,), 4), "float32")
    np.testing.assert_array_equal(kept["fc1/kernel"], of_mlp(dtype=np.float16)["fc1/kernel"])
    assert kept["fc1/kernel"].dtype == np.float32


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("gone.safetensors", None, DataError, r"init=gone.safetensors is no file in .*; give one that is there"),
        (
            "start.pt",
            b"",
            ConfigError,
            r"init=start.pt is no file of weights; give FILE.safetensors, or leave",
        ),
        ("start.safetensors", b"no", DataError, r"init=start.safetensors cannot be read \(.*; give a safetensors file"),
        ("start.safetensors", b"\xff" * 64, DataError, r"init=start.safetensors cannot be read \("),
    ],
)
def test_files_that_cannot_be(folder, name, content, error, message):  # noqa: F811
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(error, match=message):
        fedge.run(SHORT, init=name, out="none")
    assert not (folder / "none").exists()
