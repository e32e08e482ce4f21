"""Optimisers at the edges: both engines, a loop in numpy, and settings in which they are the plain algorithm."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedge.engine import Reference, Vectorised
from fedge.errors import ConfigError
from tests.helpers import distance, small, train
from tests.updates.test_server import NAMES, steps_of
from tests.updates.test_whole_runs import Loop

H, E, ROUNDS, LR = 2, 3, 2, 0.1
KEYS = {"dtype": "float64", "local_steps": H, "edge_rounds": E, "lr": LR, "devices": 1}
NUMBERS = {"edge_server_lr": 0.3, "edge_server_beta1": 0.8, "edge_server_beta2": 0.95, "edge_server_eps": 1e-2}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def hierfavg(loop, name):
    """Each edge steps from its model by what its clients' mean changed, with new moments in each global round."""
    x, k = loop.flat(loop.start), 0
    for _ in range(ROUNDS):
        edges = []
        for members in loop.members:
            edge, step = x, steps_of(name, *NUMBERS.values())
            next(step)
            for e in range(E):
                own = {}
                for i in members:
                    own[i] = edge
                    for h in range(H):
                        own[i] = own[i] - LR * loop.gradient(own[i], i, k + e * H + h)
                edge = edge + step.send(edge - loop.mean(own, members))
            edges.append(sum(loop.m[i] for i in members) * edge)
        x, k = sum(edges), k + E * H
    return x


@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_both_engines_are_the_loop(name):
    made = small(**KEYS, edge_server=name, **NUMBERS)
    loop = Loop(made)
    expected = hierfavg(loop, name)
    for engine in (Reference, Vectorised):
        state, _ = engine(made.job).rounds(made.start, 0, ROUNDS)
        np.testing.assert_allclose(loop.flat(made.evaluated(state)), expected, rtol=0, atol=1e-12)
    assert np.abs(expected - loop.flat(loop.start)).max() > 1e-2
    assert jax.tree.structure(made.start) == jax.tree.structure(small(**KEYS).start)  # nothing for a checkpoint


@pytest.mark.parametrize(
    "keys",
    [
        # 300 units and 4 biases in 7 cells: stacks of two shapes. Yogi would move what a cell's mask takes away.
        {"algorithm": "hist", "cells": 7, "edge_rounds": 2, "local_steps": 1, "edge_server": "yogi"},
        {"algorithm": "sdfeel", "clients": 8, "cells": 4, "assign": "random", "devices": 2, "edge_server": "adagrad"},
    ],
    ids=["hist", "sdfeel, whole cells on two devices"],
)
def test_engines_agree(keys):
    made = small(**KEYS | keys)
    engine = Vectorised(made.job)
    naive, _ = Reference(made.job).rounds(made.start, 0, ROUNDS)
    fast, _ = engine.rounds(made.start, 0, ROUNDS)
    for a, b in zip(jax.tree.leaves(naive), jax.tree.leaves(fast), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)
    assert engine.prepare(made.start)[0].whole_cells(0) is (keys["algorithm"] == "sdfeel")


@pytest.mark.parametrize(("edge_rounds", "beta"), [(E, 0.0), (1, 0.9)])
def test_it_is_the_plain_algorithm_without_momentum_and_where_nothing_can_be_remembered(edge_rounds, beta):
    """w − (w − w̄) is w̄ up to two roundings of numbers below 1, 2⁻⁵³ each; training carries them on."""
    keys = KEYS | {"edge_rounds": edge_rounds}
    plain, _ = train(small(**keys))
    stepped, _ = train(small(**keys, edge_server="momentum", edge_server_beta1=beta))
    assert distance(stepped, plain) < 1e-14


@pytest.mark.parametrize("name", NAMES)
def test_statistics_and_what_a_cell_does_not_own_are_not_stepped(name):
    made = small(edge_server=name, dtype="float64")
    server, trainable, statistic = made.job.algorithm.way.edge_server, min(made.model.trainable), "norm/mean"
    w = {trainable: jnp.array([1.0, 2.0, 0.0]), statistic: jnp.array([3.0])}
    combined = {trainable: jnp.array([0.5, 2.5, 0.0]), statistic: jnp.array([5.0])}
    after, moments = server.step(w, combined, {trainable: jnp.array([1.0, 1.0, 0.0])}, server.start(w))
    assert float(after[statistic][0]) == 5.0
    assert after[trainable][0] < 1.0 < 2.0 < after[trainable][1]
    assert float(after[trainable][2]) == 0.0
    assert {x.shape for x in jax.tree.leaves(moments)} <= {(3,), ()}
    assert made.job.algorithm.stale_statistics


def test_mtgc_is_refused_in_a_sentence():
    with pytest.raises(ConfigError, match=r"edge_server=adam is not for correction=mtgc, .*; leave one of them out"):
        small(correction="mtgc", edge_server="adam")
