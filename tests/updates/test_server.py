"""Optimisers in the cloud against numpy loops in float64, around an algorithm that is made here."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedge.core import tree
from fedge.core.contract import Algorithm, Cloud, Round, Stack
from fedge.core.schedule import Schedule
from fedge.core.topology import Topology
from fedge.errors import ConfigError
from fedge.updates.server import NAMES, Server, server_optimiser, server_step

TIGHT = {"atol": 1e-12, "rtol": 0}
SHARE = np.array([0.2, 0.3, 0.5])
TRAINABLE = frozenset({"fc/kernel"})
PLAIN = Algorithm(
    name="plain",
    topology=Topology.of([0, 1, 2], SHARE),
    schedule=Schedule(1, 1),
    start=lambda w: w,
    deal=lambda w, now: (Stack((0, 1, 2), tree.repeat(w, 3)),),
    merge=lambda w, stacks, now: tree.weighted_sum(now.cell_weight, stacks[0].weights),
    evaluated=lambda w, _: w,
    operator=lambda k, path: np.eye(3),
    exchange=Cloud(),
)


def pulls(rounds=6):
    """How far each cell moves in each round, the same in every run."""
    rng = np.random.default_rng(3)
    return [{"fc/kernel": rng.normal(size=(3, 2, 2)), "norm/mean": rng.normal(size=(3, 2))} for _ in range(rounds)]


BEGAN = {"fc/kernel": np.array([[1.0, -2.0], [0.5, 3.0]]), "norm/mean": np.array([0.1, -0.2])}


def run(algorithm, rounds=6):
    """Deal, move each cell as `pulls` says, merge; return what is tested after each round."""
    share = jnp.asarray(SHARE)

    @jax.jit
    def whole(state, pull):
        now = Round(jnp.int32(0), jax.random.key(0), share)
        (stack,) = algorithm.deal(state, now)
        moved = Stack(stack.ids, {path: w + pull[path] for path, w in stack.weights.items()})
        state = algorithm.merge(state, (moved,), now)
        return state, algorithm.evaluated(state, share)

    state, tested = algorithm.start({path: jnp.asarray(w) for path, w in BEGAN.items()}), []
    for pull in pulls(rounds):
        state, u = whole(state, pull)
        tested.append({path: np.asarray(w) for path, w in u.items()})
    return tested


def steps_of(name, lr, beta1, beta2, eps):
    """Yield, for each pseudo-gradient sent in, the step; written from the equations and the departures admitted."""
    m = v = 1e-6 if name == "yogi" else 0.0
    v, t, step = (eps**2 if name == "adagrad" else v), 0, None
    while True:
        g = yield step
        t += 1
        if name == "momentum":
            v = beta1 * v + g
            step = -lr * v
        elif name == "adagrad":
            v = v + g**2
            step = -lr * g / np.sqrt(v)
        else:
            m = beta1 * m + (1 - beta1) * g
            v = beta2 * v + (1 - beta2) * g**2 if name == "adam" else v - (1 - beta2) * g**2 * np.sign(v - g**2)
            step = -lr * m / (1 - beta1**t) / (np.sqrt(v / (1 - beta2**t)) + eps)


@pytest.mark.parametrize("name", NAMES)
def test_an_optimiser_is_its_equation_over_a_run(name):
    numbers = (0.3, 0.8, 0.95, 1e-2)
    with jax.enable_x64(True):
        tested = run(server_optimiser(PLAIN, TRAINABLE, server_step(name, *numbers)))
    w, statistics, step = BEGAN["fc/kernel"], BEGAN["norm/mean"], steps_of(name, *numbers)
    next(step)
    for pull, u in zip(pulls(), tested, strict=True):
        w = w + step.send(-np.tensordot(SHARE, pull["fc/kernel"], 1))
        statistics = statistics + np.tensordot(SHARE, pull["norm/mean"], 1)
        np.testing.assert_allclose(u["fc/kernel"], w, **TIGHT)
        np.testing.assert_allclose(u["norm/mean"], statistics, **TIGHT)


def test_without_momentum_and_with_a_step_of_one_nothing_changes():
    with jax.enable_x64(True):
        plain, stepped = run(PLAIN), run(server_optimiser(PLAIN, TRAINABLE, server_step("momentum", 1.0, 0.0)))
        other = run(server_optimiser(PLAIN, TRAINABLE, server_step("momentum", 1.0, 0.1)))
    for a, b in zip(plain, stepped, strict=True):
        for path in a:
            np.testing.assert_allclose(a[path], b[path], **TIGHT)
    assert abs(plain[-1]["fc/kernel"] - other[-1]["fc/kernel"]).max() > 0.01


def test_only_what_is_trainable_has_moments_and_no_matrix_says_what_the_cloud_does():
    made = server_optimiser(PLAIN, TRAINABLE, server_step("adam", 0.1))
    state = made.start({path: jnp.asarray(w, jnp.float32) for path, w in BEGAN.items()})
    assert isinstance(state, Server)
    assert {w.shape for w in jax.tree.leaves(state.moments)} == {(2, 2), ()}
    assert (made.name, made.topology, made.exchange) == (PLAIN.name, PLAIN.topology, PLAIN.exchange)
    assert made.operator is None
    assert made.stale_statistics


def test_an_algorithm_without_a_cloud_is_refused():
    with pytest.raises(ConfigError, match=r"^plain keeps a model at each edge and none in the cloud, .*; take it off"):
        server_optimiser(replace(PLAIN, edges=lambda state: state), TRAINABLE, server_step("momentum", 1.0))


def test_a_state_that_is_more_than_a_model_is_refused():
    made = server_optimiser(replace(PLAIN, start=lambda w: (w, 0)), TRAINABLE, server_step("momentum", 1.0))
    with pytest.raises(ConfigError, match="plain keeps more between rounds than the cloud's model"):
        made.start(BEGAN)


@pytest.mark.parametrize(("arguments", "reason"), [
    (("adm", 0.1), r"unknown server optimiser 'adm'; allowed: adagrad, adam, momentum, yogi; did you mean 'adam'\?"),
    (("adam", 0.0), "lr=0, .*; give an lr and an eps greater than 0"),
    (("adam", 0.1, 1.0), "betas from 0 to less than 1"),
    (("adam", 0.1, 0.9, 0.99, 0.0), "an eps greater than 0"),
])  # fmt: skip
def test_an_optimiser_that_cannot_be_is_refused_in_a_sentence(arguments, reason):
    with pytest.raises(ConfigError, match=reason):
        server_step(*arguments)
