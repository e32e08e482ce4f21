"""FedAvg, HierFAVG and SD-FEEL are kin, in float64 to 1e-12, over whole runs on both engines."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedge.engine import ENGINES
from tests.helpers import distance, gradient_of, small, train

both = pytest.mark.parametrize("engine", ["reference", "vectorised"])


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@both
def test_hierfavg_with_one_edge_round_is_fedavg(engine):
    keys = {"local_steps": 4, "edge_rounds": 1, "dtype": "float64"}
    hierarchical, flat = (train(small(algorithm=a, **keys), 3, engine)[0] for a in ("hierfavg", "fedavg"))
    assert distance(hierarchical, flat) < 1e-12


@both
def test_hierfavg_with_one_client_per_cell_is_fedavg_over_the_whole_period(engine):
    keys = {"clients": 5, "cells": 5, "local_steps": 2, "edge_rounds": 3, "dtype": "float64"}
    hierarchical, flat = (train(small(algorithm=a, **keys), 2, engine)[0] for a in ("hierfavg", "fedavg"))
    assert distance(hierarchical, flat) < 1e-12


@both
def test_otherwise_they_differ(engine):
    """The identities above would hold for a broken engine that never averages at the edge; this would not."""
    keys = {"local_steps": 2, "edge_rounds": 3, "dtype": "float64"}
    hierarchical, flat = (train(small(algorithm=a, **keys), 2, engine)[0] for a in ("hierfavg", "fedavg"))
    assert distance(hierarchical, flat) > 1e-4


EQUAL = {"partition": "iid", "clients": 6, "cells": 3, "local_steps": 2, "edge_rounds": 2, "dtype": "float64"}
UNEQUAL = EQUAL | {"partition": "dirichlet"}


@both
def test_sdfeel_on_a_complete_graph_with_equal_cells_is_hierfavg(engine):
    gossip = train(small(algorithm="sdfeel", graph="complete", **EQUAL), 3, engine)[0]
    assert distance(gossip, train(small(algorithm="hierfavg", **EQUAL), 3, engine)[0]) < 1e-12


@both
def test_sdfeel_that_takes_the_mean_is_hierfavg_for_unequal_cells_too(engine):
    gossip = train(small(algorithm="sdfeel", graph="complete", mixing="mean", **UNEQUAL), 3, engine)[0]
    assert distance(gossip, train(small(algorithm="hierfavg", **UNEQUAL), 3, engine)[0]) < 1e-12


def test_sdfeel_tends_to_hierfavg_at_rate_zeta():
    """Any connected graph, unequal cells: after one round the edges are ζ^α from the cloud's mean, in the norm of m."""
    target = train(small(algorithm="hierfavg", **UNEQUAL), 1)[0]
    apart = []
    for steps in (1, 2, 4, 8):
        made = small(algorithm="sdfeel", graph="path", gossip=steps, **UNEQUAL)
        state, _ = ENGINES["vectorised"](made.job).round(made.start, 0)
        m = made.job.algorithm.topology.cell_weight
        apart.append(np.sqrt(sum(
            m @ ((np.asarray(state[p]) - np.asarray(target[p])) ** 2).reshape(len(m), -1).sum(1) for p in state
        )))  # fmt: skip
    zeta = made.job.algorithm.gossip.zeta
    assert 0.1 < zeta < 1
    for fewer, more, extra in zip(apart, apart[1:], (1, 2, 4), strict=False):
        assert more <= fewer * zeta**extra * (1 + 1e-9)
    many = small(algorithm="sdfeel", graph="path", gossip=400, **UNEQUAL)
    assert distance(train(many, 2)[0], train(small(algorithm="hierfavg", **UNEQUAL), 2)[0]) < 1e-12


@both
def test_sdfeel_averaging_all_at_every_step_is_synchronous_sgd(engine):
    keys = UNEQUAL | {"local_steps": 1, "edge_rounds": 1}
    made = small(algorithm="sdfeel", graph="complete", mixing="mean", **keys)
    gradient = gradient_of(made)
    w, steps = made.evaluated(made.start), 4
    for k in range(steps):
        mean = {p: np.zeros_like(x) for p, x in w.items()}
        for i, m in enumerate(made.topology.weight):
            g, _ = gradient(w, i, k)
            mean = {p: mean[p] + m * g[p] for p in mean}
        w = {p: w[p] - made.config.lr * mean[p] for p in w}
    assert distance(train(made, steps, engine)[0], w) < 1e-12


@both
def test_sdfeel_with_one_cell_is_fedavg(engine):
    """D = 1: FedAvg(τ1); τ2 rounds of it make one of ours."""
    keys = UNEQUAL | {"cells": 1}
    gossip = train(small(algorithm="sdfeel", **keys), 2, engine)[0]
    flat = train(small(algorithm="fedavg", **(keys | {"edge_rounds": 1})), 4, engine)[0]
    assert distance(gossip, flat) < 1e-12


def test_sdfeel_without_gossip_leaves_cells_alone():
    """α = 0: what one cell's clients hold changes nothing at another edge."""
    made = small(algorithm="sdfeel", gossip=0, **UNEQUAL)
    other = small(algorithm="sdfeel", gossip=0, **UNEQUAL)
    alien = made.topology.roster[1]
    scrambled = np.asarray(other.job.data.y).copy()
    for i in alien:
        own = np.asarray(other.job.data.order)[int(other.job.data.start[i]) :][: int(other.job.data.size[i])]
        scrambled[own] = (scrambled[own] + 1) % 4
    from dataclasses import replace

    other = replace(other, job=replace(other.job, data=other.job.data._replace(y=jnp.asarray(scrambled))))
    one, two = (ENGINES["vectorised"](m.job).round(m.start, 0)[0] for m in (made, other))
    for path in one:
        assert (one[path][0] == two[path][0]).all()
        assert (one[path][2] == two[path][2]).all()
    assert any((one[path][1] != two[path][1]).any() for path in one)
