"""What a probe measures, held against quadratics, where every constant is known, and against plain loops."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedge.core.client import Data, Task
from fedge.core.keys import root
from fedge.core.objective import regression
from fedge.core.sampling import SAMPLERS
from fedge.core.topology import Topology
from fedge.theory.probe import CHUNK, SAMPLES, Measured, Probe, mean_over

LAYERS = ("first", "second")
BATCH = 5


class Known(NamedTuple):
    """A linear model on least squares: F_i(w) = mean_s (x_s·w − y_s)², whose Hessian is 2 X'X / n."""

    x: np.ndarray
    y: np.ndarray
    order: np.ndarray
    sizes: np.ndarray
    topology: Topology
    w: np.ndarray

    @classmethod
    def drawn(cls, sizes, cells, seed=0):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(sum(sizes), 4)) * [1, 2, 0.5, 1]
        y = x @ [1, -1, 2, 0] + rng.normal(size=len(x))
        order = rng.permutation(len(x)).astype(np.int32)
        return cls(x, y, order, np.array(sizes, np.int32), Topology.of(cells, sizes), rng.normal(size=4))

    def own(self, client):
        start = self.sizes[:client].sum()
        rows = self.order[start : start + self.sizes[client]]
        return self.x[rows], self.y[rows]

    def sample_gradients(self, client):
        x, y = self.own(client)
        return 2 * (x @ self.w - y)[:, None] * x

    def gradient(self, client):
        return self.sample_gradients(client).mean(0)

    def curvature(self, client):
        x, _ = self.own(client)
        return np.linalg.eigvalsh(2 * x.T @ x / len(x))[-1]

    def measured(self) -> Measured:
        def forward(weights, x, *, train, key):
            return x[:, :2] @ weights["first"] + x[:, 2:] @ weights["second"], {}

        def layer(path):
            return path

        task = Task(
            forward=forward, trainable=frozenset(LAYERS), sampler=SAMPLERS["epoch"], batch=BATCH, optimiser=optax.sgd,
            scale=((0.0,), (1.0,)), dtype=jnp.dtype("float64"), objective=regression(0.0),
        )  # fmt: skip
        starts = np.concatenate([[0], self.sizes.cumsum()[:-1]]).astype(np.int32)
        data = Data(self.x, self.y, self.order, starts, self.sizes)
        probe = Probe(task, data, self.topology, layer, LAYERS, root(0))
        weights = {"first": jnp.asarray(self.w[:2]), "second": jnp.asarray(self.w[2:])}
        return probe.measure(weights), probe.loss_after_step(weights, 0.1)


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


def test_constants_of_quadratics():
    """Unequal clients in unequal cells, more samples than a chunk holds, fewer than are drawn: all is exact."""
    known = Known.drawn([CHUNK + 7, 20, 1, 33], [0, 0, 1, 1])
    found, after = known.measured()
    m, cell, clients = known.topology.weight, known.topology.cell, range(4)
    gradients = np.array([known.gradient(i) for i in clients])
    whole = m @ gradients
    cells = known.topology.cell_average.T @ gradients
    own = [known.sample_gradients(i) for i in clients]
    noise = np.array(
        [[((g - g.mean(0))[:, part] ** 2).sum(1).mean() / BATCH for part in ([0, 1], [2, 3])] for g in own]
    )

    def loss(w):
        return sum(share * np.mean((x @ w - y) ** 2) for share, (x, y) in zip(m, map(known.own, clients), strict=True))

    expected = {
        "loss": loss(known.w),
        "gradient2": whole @ whole,
        "apart": m @ ((gradients - whole) ** 2).sum(1),
        "apart_most": ((gradients - whole) ** 2).sum(1).max(),
        "cells_apart": known.topology.cell_weight @ ((cells - whole) ** 2).sum(1),
        "within_cells": m @ ((gradients - cells[cell]) ** 2).sum(1),
        "noise_most": noise.sum(1).max(),
        "norm2": known.w @ known.w,
    }
    for name, value in expected.items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-12), name
    assert found.noise_error == 0
    assert found.layer_gradient2 == pytest.approx(
        [(gradients[:, :2] ** 2).sum(1).max(), (gradients[:, 2:] ** 2).sum(1).max()]
    )
    assert found.layer_noise == pytest.approx(noise.max(0))
    assert found.cells_apart + found.within_cells == pytest.approx(found.apart)  # Pythagoras
    assert after == pytest.approx(loss(known.w - 0.1 * whole), rel=1e-12)
    highest = max(known.curvature(i) for i in clients)
    assert highest - 1.1 * found.curvature_error - 1e-9 <= found.curvature <= highest * (1 + 1e-12)
    assert found.curvature == pytest.approx(highest, rel=5e-3)


def test_noise_of_some_samples_is_within_its_error():
    """Of a client with more samples than are drawn the variance is estimated; 4 errors off has p < 1e-4."""
    off = []
    for seed in range(6):
        known = Known.drawn([5 * SAMPLES], [0], seed)
        found, _ = known.measured()
        g = known.sample_gradients(0)
        exact = ((g - g.mean(0)) ** 2).sum(1).mean() / BATCH
        assert 0 < found.noise_error < exact / 2
        off.append((found.noise_most - exact) / found.noise_error)
    assert 0.1 < np.abs(off).max() < 4, off


def test_means_over_iterations():
    assert mean_over([0, 10, 40], [1.0, 3.0, 3.0]) == pytest.approx((10 * 2 + 30 * 3) / 40)
    assert mean_over([0], [2.0]) == 2
