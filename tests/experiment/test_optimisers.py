"""An optimiser that is passed in begins anew at each edge round; one that cannot do so sensibly is told of."""

import logging

import jax
import jax.numpy as jnp
import optax
import pytest

from fedge.errors import ConfigError
from fedge.experiment.build import experiment
from fedge.experiment.config import Config
from fedge.experiment.optimisers import check_optimiser
from tests.helpers import toy

WEIGHTS = {"fc/kernel": jax.ShapeDtypeStruct((3, 2), jnp.float32)}
FALLING = optax.cosine_decay_schedule(0.1, 100)


@pytest.mark.parametrize(
    "optimiser",
    [
        lambda lr: optax.sgd(optax.cosine_decay_schedule(0.1, 100)),
        lambda lr: optax.adam(lambda step: lr / (1 + step)),
        lambda lr: optax.chain(optax.clip(1.0), optax.masked(optax.sgd(FALLING), {"fc/kernel": True})),
        lambda lr: optax.inject_hyperparams(optax.sgd)(learning_rate=FALLING),
    ],
    ids=["sgd", "adam", "inside", "injected"],
)
def test_a_schedule_that_would_restart_is_said_aloud(optimiser, caplog):
    check_optimiser(optimiser, WEIGHTS, 7)
    (said,) = caplog.messages
    assert said.startswith(
        "the optimiser passed in follows a schedule, and a client's optimiser begins anew at each edge"
    )
    assert "first 7 steps (local_steps)" in said
    assert caplog.records[0].levelno == logging.WARNING


@pytest.mark.parametrize("optimiser", [optax.adam, optax.sgd, lambda lr: optax.inject_hyperparams(optax.sgd)(lr)])
def test_a_constant_rate_is_nothing_to_speak_of(optimiser, caplog):
    """Adam counts its steps too, for its bias; that is no schedule."""
    check_optimiser(optimiser, WEIGHTS, 7)
    assert not caplog.messages


@pytest.mark.parametrize(
    ("optimiser", "message"),
    [
        (
            optax.adam(0.1),
            r"passed in is a GradientTransformation.*; pass a function of the learning rate, such",
        ),
        ("adam", "passed in is a str; pass a function of the learning rate"),
        (lambda lr: lr, "passed in returned a .*; pass a function of the learning rate, .*, from optax"),
        (lambda: None, "the optimiser passed in failed, TypeError: .*; mend it"),
    ],
)
def test_what_is_no_optimiser_is_refused(optimiser, message):
    config = Config.of({"algorithm": "fedavg", "data": "custom", "optimizer": "custom", "clients": 4, "cells": 2})
    with pytest.raises(ConfigError, match=message):
        experiment(config, toy(), optimiser=optimiser)
