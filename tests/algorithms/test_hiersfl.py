"""HierSFL: its operator and identities at every cut, three ways to keep the server half, and gradients by messages."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import fedge
from fedge.core import split as messages
from fedge.core.client import normalise
from fedge.core.keys import root
from fedge.core.split import Split
from fedge.errors import ConfigError
from fedge.experiment.build import experiment
from fedge.experiment.config import Config
from fedge.models import from_nnx
from tests.helpers import assert_mean_preserved, by_operator, distance, small, toy, train

CUTS = [("mlp", cut) for cut in ("0", "hidden", "top")] + [("cnn", c) for c in ("0", "pool1", "pool2", "fc1", "top")]


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def made(model="mlp", **keys):
    """Make equal clients, so that HierSFL's uniform weights are HierFAVG's too."""
    return small(
        **{"algorithm": "hiersfl", "dtype": "float64", "model": model, "clients": 6, "partition": "iid"} | keys
    )


def uneven(model, **keys):
    """Make 7 clients of different sizes in 3 cells."""
    steps = {"local_steps": 2} if model == "cnn" else {}
    return made(model, **{"clients": 7, "partition": "dirichlet"} | steps | keys)


@pytest.mark.parametrize(("model", "cut"), CUTS)
def test_it_is_its_operator_at_every_cut(model, cut):
    one = uneven(model, cut=cut)
    for path in one.model.trainable:
        assert_mean_preserved(one.job.algorithm, path)
    assert distance(train(one, 1)[0], by_operator(one, 1)) < 1e-12


def assert_same_operators(one, other):
    assert one.schedule.period == other.schedule.period
    for path in made("cnn").model.trainable:
        for k in range(1, one.schedule.period + 1):
            np.testing.assert_allclose(one.operator(k, path), other.operator(k, path), atol=1e-15)


def test_identity_5():
    """Cut at the top is HierFAVG(τ1, τ2); at 0 HierFAVG(1, τ1τ2); with τ1 = 1 HierFAVG(1, τ2) at every cut.

    Run for one model; at every cut of the other by the operators, which are what runs do (see above).
    """

    def plain(model="mlp", **keys):
        return made(model, algorithm="hierfavg", **keys)

    def whole(one):
        return train(one, 1)[0]

    assert distance(whole(made(cut="top")), whole(plain())) < 1e-12
    assert distance(whole(made(cut="0")), whole(plain(local_steps=1, edge_rounds=6))) < 1e-12
    assert distance(whole(made(cut="hidden", local_steps=1)), whole(plain(local_steps=1))) < 1e-12
    assert_same_operators(made("cnn", cut="top").job.algorithm, plain("cnn").job.algorithm)
    assert_same_operators(made("cnn", cut="0").job.algorithm, plain("cnn", local_steps=1, edge_rounds=6).job.algorithm)
    one_step = plain("cnn", local_steps=1).job.algorithm
    for cut in ("0", *made("cnn").model.stages):
        assert_same_operators(made("cnn", cut=cut, local_steps=1).job.algorithm, one_step)


def test_identity_5_in_one_cell():
    """One cell, τ2 = 1: the server half is synchronous SGD, the client half FedAvg(τ1), coupled through activations;
    with τ1 = τ2 = 1 the whole is synchronous SGD, which is FedAvg(1)."""
    lone = {"cells": 1, "local_steps": 1, "edge_rounds": 1}
    fedavg, one = made("cnn", algorithm="fedavg", **lone), made("cnn", cut="pool2", **lone)
    assert distance(train(one)[0], train(fedavg)[0]) < 1e-12
    for cut in ("pool1", "pool2", "fc1"):
        assert_same_operators(made("cnn", cut=cut, **lone).job.algorithm, fedavg.job.algorithm)
        algorithm = made("cnn", cut=cut, **lone | {"local_steps": 3}).job.algorithm
        for path in one.model.trainable:
            between = algorithm.operator(1, path)
            server = one.model.stages.index(one.model.stage_of(path)) > one.model.stages.index(cut)
            expected = algorithm.topology.cloud_operator if server else algorithm.topology.identity
            np.testing.assert_allclose(between, expected, atol=1e-15)


@pytest.mark.parametrize(
    ("model", "cut", "engine"),
    [("mlp", "0", "vectorised"), ("mlp", "hidden", "vectorised"), ("cnn", "pool1", "vectorised"),
     ("cnn", "fc1", "vectorised"), ("cnn", "pool1", "reference")],
)  # fmt: skip
def test_identity_6_copies_are_one_shared_half(engine, model, cut):
    shared, copies = (train(uneven(model, cut=cut, server_copies=s), 1, engine)[0] for s in ("shared", "per_client"))
    assert distance(shared, copies) < 1e-12


@pytest.mark.parametrize("algorithm", ["hiersfl", "hiersfl_v2"])
@pytest.mark.parametrize(
    ("model", "keys"),
    [("cnn", {}), ("cnn", {"dropout": 0.5}), ("mlp", {"participation": 0.5}), ("mlp", {"momentum": 0.9}),
     ("mlp", {"devices": 2})],
)  # fmt: skip
def test_engines_agree(algorithm, model, keys):
    one = uneven(model, algorithm=algorithm, cut={"mlp": "hidden", "cnn": "pool2"}[model], **keys)
    assert distance(train(one, 1, "reference")[0], train(one, 1, "vectorised")[0]) < 1e-12


def test_v2_is_another_algorithm_unless_a_cell_has_one_client():
    assert distance(train(made(cut="hidden"))[0], train(made(algorithm="hiersfl_v2", cut="hidden"))[0]) > 1e-4
    alone = {"clients": 3, "cells": 3, "cut": "hidden"}
    assert distance(train(made(**alone))[0], train(made(algorithm="hiersfl_v2", **alone))[0]) < 1e-12


# By messages


@pytest.mark.parametrize(
    ("model", "cut", "engine"), [(*c, "reference") for c in CUTS] + [("cnn", "pool2", "vectorised")]
)
def test_messages_give_the_same_run(model, cut, engine):
    keys = {"cut": cut, "local_steps": 2, "dropout": 0.5}
    plain, by_messages = (train(made(model, messages=m, **keys), 1, engine)[0] for m in (False, True))
    assert distance(plain, by_messages) < 1e-12


@pytest.mark.parametrize(("cut", "bn"), [("layer1", "avg_all"), ("stem", "groupnorm")])
def test_messages_give_the_same_gradient_for_blocks_of_resnet(cut, bn):
    """BatchNorm's statistics included, on both sides of the cut."""
    plain, by_messages = (made("shallow", cut=cut, bn=bn, messages=m, clients=2, cells=1) for m in (False, True))
    results = []
    for one in (plain, by_messages):
        index = one.job.task.indices(one.job.key, one.job.data.of(0), jnp.int32(0), jnp.int32(0), 1)[0]
        results.append(
            jax.jit(one.job.task.gradient)(one.start, one.job.data, index, one.job.key, jnp.int32(0), jnp.int32(0))
        )
    assert results[0][0] == pytest.approx(float(results[1][0]), abs=1e-12)
    for a, b in zip(results[0][1:], results[1][1:], strict=True):
        assert a.keys() == b.keys()
        assert not a or distance(a, b) < 1e-12


def test_each_side_gets_only_what_is_its_own():
    """The client's functions are not handed the edge's weights, nor the edge's the client's or its inputs; an absent
    weight is NaN, so that a side that read one would show it."""
    one = made("cnn", cut="pool1")
    at = Split(one.model, ("pool1",), ("pool2", "fc1", "fc2"), one.model.stage_of, one.job.task.objective)
    client = {p: w for p, w in one.start.items() if at.on_client(p)}
    edge = {p: w for p, w in one.start.items() if not at.on_client(p)}
    assert set(client) == {"conv1/kernel", "conv1/bias"}
    data = one.job.data
    x, y = normalise(data.x[:4], one.dataset.scale, jnp.float64), data.y[:4]
    up = messages.client_forward(at, client, x, y, root(0))
    assert up.activations.shape == (4, 6, 6, 10)
    loss, g_edge, _, down = messages.edge_step(at, edge, {}, up, root(0))
    assert down.gradient.shape == up.activations.shape
    g_client, _ = messages.client_backward(at, client, {}, x, down, root(0))
    assert set(g_edge) == set(edge)
    assert set(g_client) == set(client)
    assert all(np.isfinite(np.asarray(g)).all() for g in [loss, *g_edge.values(), *g_client.values()])
    other = {p: w + 1 for p, w in edge.items()}
    again = messages.client_forward(at, client, x, y, root(0))
    assert (again.activations == up.activations).all()
    assert not (messages.edge_step(at, other, {}, up, root(0))[3].gradient == down.gradient).all()


# What it refuses


def test_an_unknown_cut_is_refused():
    with pytest.raises(
        ConfigError, match=r"unknown cut 'pol2'; allowed: 0, fc1, fc2, pool1, pool2, top; did you mean 'pool2'"
    ):
        made("cnn", cut="pol2")


def test_a_model_without_stages_is_refused_unless_it_stays_whole(tmp_path):
    class Plain(nnx.Module):
        def __init__(self, rngs):
            self.fc = nnx.Linear(25, 4, rngs=rngs)

        def __call__(self, x):
            return self.fc(x.reshape(len(x), -1))

    model = from_nnx(Plain, input_shape=(5, 5, 1), classes=4)
    keys = {"algorithm": "hiersfl", "clients": 4, "cells": 2, "rounds": 1, "partition": "iid", "dataset": toy()}
    with pytest.raises(ConfigError, match="cuts a model between its stages, but this one has only one"):
        fedge.run(model=model, out=tmp_path / "a", **keys)
    fedge.run(model=model, cut="top", out=tmp_path / "b", **keys)


class Normed(nnx.Module):
    """This has BatchNorm on both sides of the cut."""

    stages: ClassVar = {"low": ("fc1", "bn1"), "high": ("fc2", "bn2", "fc3")}

    def __init__(self, rngs):
        self.fc1, self.bn1 = nnx.Linear(25, 8, rngs=rngs), nnx.BatchNorm(8, rngs=rngs)
        self.fc2, self.bn2 = nnx.Linear(8, 6, rngs=rngs), nnx.BatchNorm(6, rngs=rngs)
        self.fc3 = nnx.Linear(6, 4, rngs=rngs)

    def stage(self, name, x):
        if name == "low":
            return nnx.relu(self.bn1(self.fc1(x.reshape(len(x), -1))))
        return self.fc3(nnx.relu(self.bn2(self.fc2(x))))

    def __call__(self, x):
        return self.stage("high", self.stage("low", x))


@pytest.mark.parametrize("keys", [{}, {"server_copies": "per_client"}, {"algorithm": "hiersfl_v2"}, {"messages": True}])
def test_batchnorm_across_the_cut(keys):
    """Statistics on both sides, on both engines; the mean-gradient form also against its operator."""
    model = from_nnx(Normed, input_shape=(5, 5, 1), classes=4)
    config = {"algorithm": "hiersfl", "clients": 7, "cells": 3, "local_steps": 3, "edge_rounds": 2, "batch": 4,
              "cut": "low", "lr": 0.1, "partition": "dirichlet", "dtype": "float64", "data": "custom",
              "model": "custom"}  # fmt: skip
    one = experiment(Config.of(config | keys), toy(), model)
    naive = train(one, 1, "reference")[0]
    assert distance(naive, train(one, 1, "vectorised")[0]) < 1e-12
    if one.job.algorithm.operator is not None:
        assert distance(naive, by_operator(one, 1)) < 1e-12


def test_a_parameter_in_no_stage_is_refused():
    class Forgot(Normed):
        stages: ClassVar = {"low": ("fc1", "bn1"), "high": ("fc2", "bn2")}

    model = from_nnx(Forgot, input_shape=(5, 5, 1), classes=4)
    with pytest.raises(ConfigError, match="parameter 'fc3/bias' belongs to no stage"):
        fedge.run(algorithm="hiersfl", clients=4, cells=2, dataset=toy(), model=model, partition="iid", cut="low")
