"""Optimisers in the cloud, which take what a global round changed for a gradient.

    g ← w − w̄                                             w̄ = what the algorithm merged; over trainable paths only
    v ← βv + g,  w ← w − ηv                               momentum: FedAvgM (Hsu, Qi, Brown 2019)

    FedAdam, FedYogi, FedAdagrad (Reddi et al.: Adaptive Federated Optimization, ICLR 2021), with Δ = −g:

    m ← β1 m + (1 − β1)Δ                                  adam, yogi
    v ← β2 v + (1 − β2)Δ²                                 adam
    v ← v − (1 − β2)Δ² sign(v − Δ²)                       yogi
    v ← v + Δ²,  m = Δ                                    adagrad
    w ← w + η m/(√v + τ)

Symbols: η = lr, β = β1 = beta1, β2 = beta2, τ = eps. What is not trainable (running statistics) is as it was merged.
With momentum, η = 1 and β = 0 this is the algorithm itself, up to rounding. Statistics that were merged are of w̄, not
of w, so the tested model's are estimated anew, as HIST's.

Departures from the second paper, all of optax: adam and yogi correct m and v for their bias, which the paper leaves
out; v begins at 0 (adam) or 10⁻⁶ (yogi, as does m) and not at τ² or more; adagrad divides by √v alone, with v = τ² at
first, and keeps no m (the paper's experiments have β1 = 0 there).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from pydantic import Field

from fedge.core import tree
from fedge.core.contract import Algorithm, ModelDescription, Round, Stack
from fedge.core.tree import Weights
from fedge.errors import ConfigError, unknown

RATES = {"momentum": 1.0, "adam": 0.01, "yogi": 0.01, "adagrad": 0.01}  # η unless it is given
NAMES = tuple(RATES)


class Server(NamedTuple):
    """This is the cloud's model and what its optimiser remembers."""

    model: Weights
    moments: Any


def stepped(
    algorithm: Algorithm, model: ModelDescription, *,
    server: Annotated[Literal["none", "momentum", "adam", "yogi", "adagrad"], Field(
        description="optimiser in the cloud, which takes what a round changed for a gradient"
    )] = "none",
    server_lr: Annotated[float | None, Field(
        gt=0, le=1e6, description="step size of the server's optimiser; unless given, 1 for momentum, else 0.01"
    )] = None,
    server_beta1: Annotated[float, Field(ge=0, lt=1, description="momentum of the server's optimiser")] = 0.9,
    server_beta2: Annotated[float, Field(ge=0, lt=1, description="memory of squares of the server's optimiser")] = 0.99,
    server_eps: Annotated[float, Field(gt=0, le=1e6, description="τ of the server's optimiser")] = 1e-3,
) -> Algorithm:  # fmt: skip
    if server == "none":
        return algorithm
    optimiser = server_step(server, server_lr or RATES[server], server_beta1, server_beta2, server_eps)
    return server_optimiser(algorithm, model.trainable, optimiser)


def server_step(
    name: str, lr: float, beta1: float = 0.9, beta2: float = 0.99, eps: float = 1e-3
) -> optax.GradientTransformation:
    """Return the optimiser of this name; β1, β2 and τ are the second paper's, unless said otherwise."""
    if not (lr > 0 and 0 <= beta1 < 1 and 0 <= beta2 < 1 and eps > 0):
        raise ConfigError(
            f"a server optimiser with lr={lr:g}, beta1={beta1:g}, beta2={beta2:g} and eps={eps:g}; give an lr and an "
            "eps greater than 0, and betas from 0 to less than 1"
        )
    if name == "momentum":
        return optax.sgd(lr, momentum=beta1)
    if name == "adam":
        return optax.adam(lr, beta1, beta2, eps)
    if name == "yogi":
        return optax.yogi(lr, beta1, beta2, eps)
    if name == "adagrad":
        return optax.adagrad(lr, initial_accumulator_value=eps**2, eps=0)
    raise ConfigError(unknown("server optimiser", name, NAMES))


def step_towards(
    optimiser: optax.GradientTransformation, trainable: frozenset[str], w: Weights, merged: Weights, moments: Any
) -> tuple[Weights, Any]:
    """Step from w by w − w̄ over trainable paths; the others are as merged. Return the moments after it too."""
    old, _ = tree.split(w, trainable.__contains__)
    gradient = {path: w - merged[path] for path, w in old.items()}
    delta, moments = optimiser.update(gradient, moments, old)
    assert isinstance(delta, dict)
    return merged | {path: w + delta[path] for path, w in old.items()}, moments


def server_optimiser(
    algorithm: Algorithm, trainable: frozenset[str], optimiser: optax.GradientTransformation
) -> Algorithm:
    """Return the algorithm with an optimiser between what it merges and the cloud's next model."""
    if algorithm.edges is not None:
        raise ConfigError(
            f"{algorithm.name} keeps a model at each edge and none in the cloud, which a server optimiser would step; "
            "take it off, or choose an algorithm with a cloud"
        )

    def start(w: Weights) -> Server:
        model = algorithm.start(w)
        if jax.tree.map(jnp.shape, model) != jax.tree.map(jnp.shape, w):
            raise ConfigError(
                f"{algorithm.name} keeps more between rounds than the cloud's model, which a server optimiser would "
                "step; take it off, or let the algorithm do that itself"
            )
        return Server(model, optimiser.init(tree.split(model, trainable.__contains__)[0]))

    def deal(state: Server, now: Round) -> tuple[Stack, ...]:
        return algorithm.deal(state.model, now)

    def merge(state: Server, stacks: tuple[Stack, ...], now: Round) -> Server:
        merged = algorithm.merge(state.model, stacks, now)
        return Server(*step_towards(optimiser, trainable, state.model, merged, state.moments))

    def evaluated(state: Server, cell_weight: Array) -> Weights:
        return algorithm.evaluated(state.model, cell_weight)

    return replace(
        algorithm, start=start, deal=deal, merge=merge, evaluated=evaluated, operator=None, stale_statistics=True
    )
