"""An edge's roles by themselves: folding one model after the other, and mixing with neighbours."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedge.core.contract import Round
from fedge.core.edge import MEAN, aggregate_of, mix
from fedge.core.keys import root
from fedge.updates.rules import rule_of
from tests.helpers import small

RNG = np.random.default_rng(3)
START = {"a": RNG.normal(size=(3, 2)), "b": RNG.normal(size=4)}
MODELS = [{path: RNG.normal(size=w.shape) for path, w in START.items()} for _ in range(5)]
SHARES = [0.1, 0.3, 0.2, 0.25, 0.15]


def fold(aggregate, numbers):
    total = aggregate.empty(START)
    for n in numbers:
        total = aggregate.add(total, SHARES[n], MODELS[n])
    return total


@pytest.mark.parametrize("name", ["mean", "median", "trimmed:0.2"])
def test_models_may_be_folded_in_two_places(name):
    """Two aggregates that were filled apart and joined are one that was filled in a row."""
    with jax.enable_x64(True):
        aggregate = aggregate_of(rule_of(name))
        whole = aggregate.close(fold(aggregate, range(5)), START)
        apart = aggregate.close(aggregate.join(fold(aggregate, range(2)), fold(aggregate, range(2, 5))), START)
        for path in START:
            stacked = np.stack([model[path] for model in MODELS])
            expected = {"mean": np.tensordot(SHARES, stacked, 1), "median": np.median(stacked, 0)}.get(name)
            np.testing.assert_allclose(apart[path], whole[path], rtol=0, atol=1e-15)
            if expected is not None:
                np.testing.assert_allclose(whole[path], expected, rtol=0, atol=1e-15)


def test_nothing_folded_is_nothing():
    assert all((w == 0).all() for w in MEAN.close(MEAN.empty(START), START).values())


@pytest.mark.parametrize("keys", [{"graph": "path"}, {"graph": "ring", "mixing": "printed"}])
def test_edges_that_mix_for_themselves_are_the_merge(keys):
    """α exchanges, each edge with what its neighbours hold and its own column of P, are SD-FEEL's merge."""
    with jax.enable_x64(True):
        made = small(algorithm="sdfeel", cells=4, clients=9, gossip=3, dtype="float64", **keys)
        algorithm, gossip = made.job.algorithm, made.job.algorithm.gossip
        models = [{path: RNG.normal(size=w.shape[1:]) for path, w in made.start.items()} for _ in range(4)]
        stacked = {path: jnp.stack([m[path] for m in models]) for path in models[0]}
        now = Round(jnp.int32(0), root(0), jnp.asarray(algorithm.topology.cell_weight), algorithm.constants)
        (stack,) = algorithm.deal(made.start, now)
        merged = algorithm.merge(made.start, (stack._replace(weights=stacked),), now)
    for _ in range(gossip.steps):
        models = [
            mix(own, {j: models[j] for j in gossip.graph[d]}, dict(enumerate(gossip.mixing[:, d])), d)
            for d, own in enumerate(models)
        ]
    for d, own in enumerate(models):
        for path, w in own.items():
            np.testing.assert_allclose(merged[path][d], w, rtol=0, atol=1e-12)
