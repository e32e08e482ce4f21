"""Losses and metrics against plain numpy, over groups of samples as an evaluation takes them."""

import jax
import numpy as np
import pytest

from fedge.core.objective import Metric, Objective, classification, macro_f1, regression, tokens
from fedge.errors import ConfigError

RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def found(objective, name, outputs, targets):
    """A metric of all these samples, from the mean of what it takes of each."""
    mean = np.asarray(objective.metric(name).each(outputs, targets), np.float64).mean(0)
    return float(objective.value(name, mean[None])[0])


def log_softmax(z):
    return z - np.log(np.exp(z).sum(-1, keepdims=True))


def test_classification():
    objective, z, y = classification(3), RNG.normal(size=(9, 3)), RNG.integers(0, 3, 9)
    assert objective.names == ["accuracy", "loss"]
    np.testing.assert_allclose(objective.loss(z, y), -log_softmax(z)[np.arange(9), y], rtol=1e-12)
    assert found(objective, "accuracy", z, y) == pytest.approx((z.argmax(1) == y).mean(), rel=1e-15)


@pytest.mark.parametrize("shape", [(), (1,), (2,)])
def test_regression(shape):
    """Targets near 1000 that differ by one: sums of their squares would lose the variance in a float32."""
    y = 1000 + RNG.normal(size=(40, *shape))
    z = y + RNG.normal(size=y.shape)
    objective, error = regression(y[:10].mean(0)), (z - y).reshape(40, -1)
    outputs = z.reshape(40, -1)
    np.testing.assert_allclose(objective.loss(outputs, y), (error**2).mean(1), rtol=1e-12)
    assert found(objective, "mae", outputs, y) == pytest.approx(np.abs(error).mean(), rel=1e-12)
    r2 = np.mean(1 - (error**2).sum(0) / ((y - y.mean(0)) ** 2).sum(0).reshape(-1))
    assert found(objective, "r2", outputs, y) == pytest.approx(r2, rel=1e-12)
    assert found(objective, "r2", outputs.astype(np.float32), y.astype(np.float32)) == pytest.approx(r2, abs=1e-3)


def test_r2_of_equal_targets_is_not_defined():
    assert not np.isfinite(found(regression(2.0), "r2", np.ones((3, 1)), np.full(3, 2.0)))


@pytest.mark.parametrize("positions", [(), (5,)])
def test_tokens(positions):
    """One label for a sample, or one for each position; labels below 0 are not counted."""
    y = RNG.integers(-1, 4, (8, *positions))
    y[0] = -1  # nothing of the first sample counts
    z = RNG.normal(size=(*y.shape, 4))
    nll = -np.take_along_axis(log_softmax(z), np.maximum(y, 0)[..., None], -1)[..., 0]
    rows = [(n[c].mean() if c.any() else 0.0) for n, c in zip(nll, y >= 0, strict=True)]
    objective = tokens(4)
    np.testing.assert_allclose(objective.loss(z, y), rows, rtol=1e-12)
    assert found(objective, "perplexity", z, y) == pytest.approx(np.exp(nll[y >= 0].mean()), rel=1e-12)
    assert found(objective, "accuracy", z, y) == pytest.approx((z.argmax(-1) == y)[y >= 0].mean(), rel=1e-12)


def test_macro_f1_is_the_mean_over_classes_that_occur():
    """Class 3 is only ever predicted, class 4 neither label nor prediction; a label of −1 is not counted."""
    labels, predicted = np.array([0, 0, 1, 1, 2, -1]), np.array([0, 1, 1, 1, 3, 5])
    each = [2 * 1 / (1 + 2), 2 * 2 / (3 + 2), 0.0, 0.0]  # 2·TP / (predicted + labelled) of classes 0 to 3
    assert macro_f1(predicted, labels) == pytest.approx(np.mean(each), rel=1e-15)


def test_a_metric_may_be_a_plain_function():
    def off(outputs, targets):
        return abs(outputs[:, 0] - targets)

    objective = Objective(off, {"off": off, "worst": Metric(off, higher_is_better=False)}, task="regression")
    assert (objective.main, objective.of_groups) == ("off", "off")
    assert objective.metric("off").higher_is_better
    assert not objective.metric("loss").higher_is_better
    assert Objective(off).names == ["loss"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"loss": 3}, "give the loss, a function of"),
        ({"task": "ranking"}, "task='ranking' is no kind of targets; give one of: classification, regression, tokens"),
        ({"metrics": {"bytes": max}}, "'bytes' is another column of the record"),
        ({"metrics": {"cell_error": max}}, "'cell_error' is another column"),
        ({"main": "auc"}, "has no metric 'auc'; it has: loss"),
        ({"of_groups": "auc"}, "has no metric 'auc'; it has: loss"),
    ],
)
def test_objectives_that_cannot_be(given, message):
    with pytest.raises(ConfigError, match=message):
        Objective(**{"loss": max} | given)
