"""The objective in the record is clients' mean losses by the algorithm's own weights: NumPy says so too."""

import jax
import numpy as np
import pytest

from fedge.runner.cache import ProgramCache
from fedge.runner.metrics import Metrics
from tests.helpers import small

WEIGHTS = {  # m_i from the clients' sample counts |S_i| and the client counts n_j of their cells
    "fedavg": lambda size, n, cells: size / size.sum(),
    "hierfavg": lambda size, n, cells: size / size.sum(),
    "sdfeel": lambda size, n, cells: size / size.sum(),
    "hist": lambda size, n, cells: 1 / (cells * n),
    "hfedavg": lambda size, n, cells: 1 / (cells * n),
    "hiersfl": lambda size, n, cells: np.full(len(size), 1 / len(size)),
}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def made(algorithm, partition="dirichlet", seed=0):
    """Make seven clients in three cells, so that cells are unequal; on two devices, whose batches are filled up."""
    keys = {"cut": "hidden"} if algorithm == "hiersfl" else {}
    part = {"drawn": {"client_samples": 20}, "one_class": {"class_split": "random_class"}}.get(partition, {})
    return small(algorithm=algorithm, partition=partition, seed=seed, dtype="float64", train_eval=True, **keys, **part)


def by_hand(run):
    """Return the plain mean over the samples that somebody has, and the objective, client by client."""
    w = run.evaluated(run.start)
    x = (run.dataset.x_train.reshape(-1, 25) / 255 - 0.5) / 0.5
    logits = np.maximum(x @ w["fc1/kernel"] + w["fc1/bias"], 0) @ w["fc2/kernel"] + w["fc2/bias"]
    losses = np.log(np.exp(logits).sum(1)) - np.asarray(logits)[np.arange(len(x)), run.dataset.y_train]
    size, cell = run.partition.size, run.partition.cell
    of_client = [losses[own].mean() for own in run.partition.samples]
    weight = WEIGHTS[run.config.algorithm](size, np.bincount(cell)[cell], run.config.cells)
    assert weight.sum() == pytest.approx(1, abs=1e-15)
    return losses[np.unique(run.partition.order)].mean(), weight @ of_client


def rows(*runs):
    states = jax.tree.map(lambda *each: np.stack(each), *(run.start for run in runs))
    return Metrics(runs, ProgramCache())(states, 0, [0.0] * len(runs))


@pytest.mark.parametrize("algorithm", WEIGHTS)
def test_the_objective_is_the_mean_by_the_algorithms_own_weights(algorithm):
    """Every sample has one owner, so weights by data give the plain mean; clients and cells are of different sizes."""
    run = made(algorithm)
    assert len(set(run.partition.size)) > 2
    assert len(set(np.bincount(run.partition.cell))) > 1
    (row,), (mean, objective) = rows(run), by_hand(run)
    assert row["global_loss"] == pytest.approx(mean, rel=1e-12)
    assert row["objective"] == pytest.approx(objective, rel=1e-12)
    if algorithm in ("hist", "hfedavg", "hiersfl"):
        assert abs(objective - mean) > 1e-3
    else:
        assert row["objective"] == pytest.approx(row["global_loss"], rel=1e-12)


@pytest.mark.parametrize(
    ("algorithm", "partition"), [("hist", "drawn"), ("hierfavg", "drawn"), ("hiersfl", "one_class")]
)
def test_samples_of_nobody_and_of_several(algorithm, partition):
    """Clients that draw may have a sample in common, or twice; a class that nobody drew is not counted."""
    run = made(algorithm, partition, seed=6)
    owners = np.bincount(run.partition.order, minlength=90)
    assert owners.min() == 0
    assert owners.max() > (partition == "drawn")
    (row,), (mean, objective) = rows(run), by_hand(run)
    assert row["global_loss"] == pytest.approx(mean, rel=1e-12)
    assert row["objective"] == pytest.approx(objective, rel=1e-12)
    assert abs(objective - mean) > 1e-3


def test_runs_side_by_side_have_their_own_objectives():
    runs = [made("hist", seed=seed) for seed in (0, 1)]
    found, expected = rows(*runs), [by_hand(run) for run in runs]
    for row, (mean, objective) in zip(found, expected, strict=True):
        assert row["global_loss"] == pytest.approx(mean, rel=1e-12)
        assert row["objective"] == pytest.approx(objective, rel=1e-12)
    assert abs(expected[0][1] - expected[1][1]) > 1e-3
