"""Updates over whole runs, on the engine, against loops in numpy that share only the draws; and what does nothing.

The loops take each client's minibatch gradients from the job, and have their papers' equations written out.
"""

import jax
import numpy as np
import pytest

from fedge.core.update import PLAIN
from fedge.engine import Vectorised
from fedge.experiment.build import experiment
from fedge.experiment.config import Config
from fedge.updates import UPDATES
from fedge.updates.codecs import encoded
from fedge.updates.corrections import corrected
from fedge.updates.edge_server import stepped_at_edges
from fedge.updates.proximal import proximal
from fedge.updates.rules import combined
from fedge.updates.server import stepped
from tests.helpers import gradient_of, small, toy

H, E, ROUNDS, LR, MU = 2, 3, 3, 0.1, 0.7
KEYS = {"dtype": "float64", "local_steps": H, "edge_rounds": E, "lr": LR, "devices": 1}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


class Loop:
    """A run as loops: vectors of all weights, and the gradient of a client on its minibatch at iteration k."""

    def __init__(self, made):
        self.topology = made.job.algorithm.topology
        self.members = [np.flatnonzero(self.topology.cell == d) for d in range(self.topology.cells)]
        self.m, self.start = self.topology.weight, made.evaluated(made.start)
        self.paths = sorted(self.start)
        self._gradient = gradient_of(made)

    def flat(self, weights):
        return np.concatenate([np.asarray(weights[path]).ravel() for path in self.paths])

    def gradient(self, x, i, k):
        cuts = np.cumsum([self.start[path].size for path in self.paths])[:-1]
        parts = zip(self.paths, np.split(x, cuts), strict=True)
        weights = {path: part.reshape(self.start[path].shape) for path, part in parts}
        return self.flat(self._gradient(weights, i, k)[0])

    def mean(self, models, of):
        return sum(self.m[i] * models[i] for i in of) / sum(self.m[i] for i in of)


def fedprox(loop, anchor):
    x, k = loop.flat(loop.start), 0
    for _ in range(ROUNDS):
        edges = []
        for members in loop.members:
            edge = x
            for e in range(E):
                own = {}
                for i in members:
                    w, to = edge, edge if anchor == "edge" else x
                    for h in range(H):
                        w = w - LR * (loop.gradient(w, i, k + e * H + h) + MU * (w - to))
                    own[i] = w
                edge = loop.mean(own, members)
            edges.append(sum(loop.m[i] for i in members) * edge)
        x, k = sum(edges), k + E * H
    return x


def scaffold(loop):
    """Its algorithm 1, option II, a server step of 1, everybody in; FedAvg's local steps are H·E."""
    x, k, everyone, steps = loop.flat(loop.start), 0, range(loop.topology.clients), H * E
    own, server = {i: np.zeros_like(x) for i in everyone}, np.zeros_like(x)
    for _ in range(ROUNDS):
        y, before = {}, dict(own)
        for i in everyone:
            y[i] = x
            for h in range(steps):
                y[i] = y[i] - LR * (loop.gradient(y[i], i, k + h) - own[i] + server)
            own[i] = own[i] - server + (x - y[i]) / (steps * LR)
        server = server + sum(loop.m[i] * (own[i] - before[i]) for i in everyone)
        x, k = loop.mean(y, everyone), k + steps
        np.testing.assert_allclose(sum(loop.m[i] * own[i] for i in everyone), server, atol=1e-12)  # Σ m_i c_i = c
    return x


def mtgc(loop):
    x, k = loop.flat(loop.start), 0
    y = [np.zeros_like(x) for _ in loop.members]
    for _ in range(ROUNDS):
        edges = []
        for d, members in enumerate(loop.members):
            edge, z = x, {i: np.zeros_like(x) for i in members}
            for e in range(E):
                own = {}
                for i in members:
                    own[i] = edge
                    for h in range(H):
                        own[i] = own[i] - LR * (loop.gradient(own[i], i, k + e * H + h) + z[i] + y[d])
                edge = loop.mean(own, members)
                z = {i: z[i] + (own[i] - edge) / (H * LR) for i in members}
            edges.append(edge)
        x = sum(sum(loop.m[i] for i in members) * edge for members, edge in zip(loop.members, edges, strict=True))
        y, k = [y[d] + (edge - x) / (H * E * LR) for d, edge in enumerate(edges)], k + E * H
    return x


def fedadam(loop):
    """m and v with their bias corrected, as optax has them; β1 = 0.9, β2 = 0.99, τ = 10⁻³, η = 0.01."""
    x, k, everyone = loop.flat(loop.start), 0, range(loop.topology.clients)
    m = v = np.zeros_like(x)
    for t in range(1, ROUNDS + 1):
        y = {}
        for i in everyone:
            y[i] = x
            for h in range(H * E):
                y[i] = y[i] - LR * loop.gradient(y[i], i, k + h)
        g = x - loop.mean(y, everyone)
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g**2
        x, k = x - 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-3), k + H * E
    return x


@pytest.mark.parametrize(
    ("keys", "oracle"),
    [
        ({"algorithm": "hierfavg", "prox": MU}, lambda loop: fedprox(loop, "edge")),
        ({"algorithm": "hierfavg", "prox": MU, "prox_anchor": "cloud"}, lambda loop: fedprox(loop, "cloud")),
        ({"algorithm": "scaffold"}, scaffold),
        ({"algorithm": "mtgc"}, mtgc),
        ({"algorithm": "fedadam"}, fedadam),
    ],
    ids=["fedprox to the edge's model", "fedprox to the cloud's", "scaffold", "mtgc", "fedadam"],
)
def test_a_run_is_its_papers_loop(keys, oracle):
    made = small(**KEYS | keys)
    loop = Loop(made)
    state, _ = Vectorised(made.job).rounds(made.start, 0, ROUNDS)
    expected = oracle(loop)
    np.testing.assert_allclose(loop.flat(made.evaluated(state)), expected, rtol=0, atol=1e-12)
    assert np.abs(expected - loop.flat(loop.start)).max() > 1e-2


NEUTRAL = {
    proximal: {"prox": 0.0},
    corrected: {"correction": "none"},
    encoded: {"codec": "qsgd32", "down_codec": "qsgd32", "cloud_codec": "qsgd32"},
    combined: {"edge_rule": "trimmed:0", "cloud_rule": "trimmed:0.0"},
    stepped_at_edges: {"edge_server": "none"},
    stepped: {"server": "none"},
}


@pytest.mark.parametrize("update", UPDATES, ids=lambda update: update.__name__)
def test_what_does_nothing_is_the_plain_algorithm_itself(update):
    """μ = 0, no correction, 32 bits, nothing trimmed: the same value comes back, so every bit of a run is the same."""
    made = experiment(Config.of({"algorithm": "hierfavg", "data": "custom", "clients": 4, "cells": 2}), toy())
    plain = made.job.algorithm
    assert plain.way == PLAIN
    assert update(plain, made.model, **NEUTRAL[update]) is plain
    assert NEUTRAL.keys() == set(UPDATES)


def test_corrections_of_zero_are_the_plain_algorithm_to_the_bit():
    """In MTGC's first edge round all rows are 0; the second is the first to differ."""
    keys = {"dtype": "float32", "local_steps": 2, "edge_rounds": 1, "devices": 1}
    corrected, plain = small(algorithm="mtgc", **keys), small(algorithm="hierfavg", **keys)
    state, _ = Vectorised(corrected.job).rounds(corrected.start, 0, 1)
    expected, _ = Vectorised(plain.job).rounds(plain.start, 0, 1)
    for path, w in plain.evaluated(expected).items():
        np.testing.assert_array_equal(corrected.evaluated(state)[path], w)
