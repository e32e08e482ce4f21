"""Client optimisers come from optax; the learning rate stays a traced value, so a sweep compiles once.

A client's optimiser begins anew at each edge round: nothing of it is kept between them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from fedge.core.tree import Weights
from fedge.errors import ConfigError
from fedge.experiment.config import Config
from fedge.plugins import call

log = logging.getLogger(__name__)
Optimiser = Callable[[Array], optax.GradientTransformation]


def build_optimiser(config: Config) -> Optimiser:
    """Return the configured optimiser: learning rate → optax transformation."""
    decay = config.weight_decay

    def optimiser(lr: Array) -> optax.GradientTransformation:
        match config.optimizer:
            case "sgd":
                step = optax.sgd(lr, momentum=config.momentum or None)
                return optax.chain(optax.add_decayed_weights(decay), step) if decay else step
            case "adamw":
                return optax.adamw(lr, weight_decay=decay)
            case name:
                step = {"adam": optax.adam, "rmsprop": optax.rmsprop, "adagrad": optax.adagrad}[name](lr)
                return optax.chain(optax.add_decayed_weights(decay), step) if decay else step

    return optimiser


def check_optimiser(optimiser: Any, weights: Weights, local_steps: int) -> None:
    """Refuse what is no optimiser of a learning rate, and say where a schedule in it would begin again and again."""
    example = "pass a function of the learning rate, such as optax.adam or lambda lr: optax.sgd(lr, nesterov=True)"
    if isinstance(optimiser, optax.GradientTransformation) or not callable(optimiser):
        raise ConfigError(f"the optimiser passed in is a {type(optimiser).__name__}; {example}")

    def begin(lr: Array, weights: Weights) -> Any:
        made = optimiser(lr)
        if not isinstance(made, optax.GradientTransformation):
            raise ConfigError(f"the optimiser passed in returned a {type(made).__name__}; {example}, from optax")
        return made.init(weights)

    rate = jax.ShapeDtypeStruct((), jnp.float32)
    memory = call("the optimiser passed in", jax.eval_shape, begin, rate, weights)
    if any(type(part).__name__.endswith("ScheduleState") for part in _parts(memory)):
        log.warning(
            "the optimiser passed in follows a schedule, and a client's optimiser begins anew at each edge round: only "
            "the schedule's first %d steps (local_steps) are ever taken, again and again; write it for those, or take "
            "a constant rate", local_steps,
        )  # fmt: skip


def _parts(memory: Any) -> Iterator[Any]:
    """List all that an optimiser remembers, from the whole to the leaves; optax's memories are tuples with names."""
    yield memory
    if isinstance(memory, tuple | list):
        for part in memory:
            yield from _parts(part)
    elif isinstance(memory, dict):
        yield from _parts(list(memory.values()))
