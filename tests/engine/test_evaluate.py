"""Testing gives the same numbers however images are spread, also where those of a batch are normalised together."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from fedge.core.objective import classification
from fedge.engine import evaluate
from fedge.engine.evaluate import Evaluator, equal_batches
from fedge.models import from_nnx

SCALE = ((0.0,), (1.0,))
CLASSES = classification(3)
RNG = np.random.default_rng(0)


class Normed(nnx.Module):
    def __init__(self, rngs):
        self.fc, self.norm = nnx.Linear(4, 3, rngs=rngs), nnx.BatchNorm(3, rngs=rngs)

    def __call__(self, x):
        return self.norm(self.fc(x))


def model_of(statistics):
    return from_nnx(Normed, input_shape=(4,), classes=3, statistics=statistics)


def draw(count):
    """Draw images that drift, so that it matters which of them are normalised together."""
    x = RNG.normal(np.linspace(-3, 3, count)[:, None], 1, (count, 4)).astype(np.float32)
    return x, RNG.integers(0, 3, count)


@pytest.mark.parametrize("statistics", ["avg_all", "batch_stats"])
def test_neither_the_devices_nor_the_batches_that_suit_them_change_a_result(statistics, monkeypatch):
    """On two devices the 205 images of one batch size are 2 and 1 batches; a GPU would take all of them at once."""
    model, (x, y) = model_of(statistics), draw(205)
    weights = model.initialise(jax.random.key(0))
    found = []
    for devices, batch in ((1, 25), (2, 25), (1, 2000)):
        monkeypatch.setitem(evaluate.BATCH, "cpu", batch)
        found.append(Evaluator(model, CLASSES, x, y, SCALE, jnp.float32, devices, model.evaluates_batches)(weights))
    for one in found[1:]:
        assert one["accuracy"] == found[0]["accuracy"]
        assert one["loss"] == pytest.approx(found[0]["loss"], rel=1e-6)


def test_batches_are_normalised_by_their_own_images_alone():
    """205 images are 69, 68 and 68, none of them twice: the mean is that of a loop over these."""
    model, (x, y) = model_of("batch_stats"), draw(205)
    weights = model.initialise(jax.random.key(0))
    losses = []
    for part in (slice(0, 69), slice(69, 137), slice(137, 205)):
        logits, _ = model(weights, jnp.asarray(x[part]), train=False, key=jax.random.key(0))
        losses.append(optax.softmax_cross_entropy_with_integer_labels(logits, y[part]))
    evaluator = Evaluator(model, CLASSES, x, y, SCALE, jnp.float32, 2, True)
    loss = evaluator(weights)["loss"]
    assert loss == pytest.approx(float(jnp.concatenate(losses).mean()), rel=1e-6)
    share = RNG.dirichlet(np.ones(205), 2)  # of two models, which here are the same one
    both = evaluator.each({p: jnp.stack([w, w]) for p, w in weights.items()}, evaluator.shares(share))
    assert both["loss"].tolist() == [loss, loss]
    assert both["objective"] == pytest.approx(share @ np.concatenate(losses), rel=1e-6)


@pytest.mark.parametrize("images", [1, 99, 100, 101, 250, 10_000])
@pytest.mark.parametrize("devices", [1, 2, 3])
def test_equal_batches_count_every_image_once(images, devices):
    batches = equal_batches(images, devices)
    counted = np.concatenate([index[counts] for index, counts in batches])
    np.testing.assert_array_equal(np.sort(counted), np.arange(images))
    assert all(len(index) % devices == 0 for index, _ in batches)
    sizes = {index.shape[1] for index, _ in batches}
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= 100


def test_only_a_model_with_statistics_of_its_batches_asks_for_them():
    assert model_of("batch_stats").evaluates_batches
    assert not model_of("avg_all").evaluates_batches
    plain = from_nnx(lambda rngs: nnx.Linear(4, 3, rngs=rngs), input_shape=(4,), classes=3, statistics="batch_stats")
    assert not plain.evaluates_batches
