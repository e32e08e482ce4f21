"""This finds the cut at which splitting a model beats sending it.

A client of a split model uploads, per edge round, the activations of τ1 minibatches and its own half; otherwise the
whole model. Splitting sends less iff τ1·b·a + M_c < M, a the activations of a sample at the cut, M_c the client's
parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import jax
from jax import Array

from fedge.core.keys import root
from fedge.core.schedule import Schedule
from fedge.core.split import StagedForward
from fedge.core.tree import Weights
from fedge.cost.clock import Rates
from fedge.cost.work import multiply_adds


class Staged(StagedForward, Protocol):
    """This is what a model must tell to be priced: `fedge.from_nnx` gives it for any module with named stages."""

    @property
    def input_shape(self) -> tuple[int, ...]: ...
    @property
    def stages(self) -> tuple[str, ...]: ...
    @property
    def trainable(self) -> frozenset[str]: ...
    @property
    def parameters(self) -> int: ...
    @property
    def initialise(self) -> Callable[[Array], Weights]: ...
    def stage_of(self, path: str) -> str: ...


@dataclass(frozen=True)
class Place:
    """This is a place to cut: it holds what a sample's activations are there and what of the model is below."""

    name: str
    activations: int  # a: numbers per sample; 0 where a client computes its own loss
    client_parameters: int  # M_c
    client_work: float  # φ: share of the multiply-adds
    bits: int = 32  # of one activation on its way up
    gradients: bool = True  # whether they come back down


@dataclass(frozen=True)
class Price:
    """This is what a cut costs a client per global round, at a batch size, a schedule and a network."""

    place: Place
    parameters: int  # M, of the whole model
    batch: int
    schedule: Schedule
    rates: Rates

    @property
    def upload_bits(self) -> int:
        steps, rounds = self.schedule.local_steps, self.schedule.edge_rounds
        return rounds * (
            steps * self.batch * self.place.activations * self.place.bits + 32 * self.place.client_parameters
        )

    @property
    def whole_bits(self) -> int:
        """Count the bits that a client sends where it holds the whole model."""
        return self.schedule.edge_rounds * 32 * self.parameters

    @property
    def activation_seconds(self) -> float:
        """A minibatch's activations take t_act, one way."""
        return self.place.bits * self.place.activations * self.batch / self.rates.uplink_bps

    @property
    def round_seconds(self) -> float:
        """A round takes τ2[τ1(φ t_c + (1−φ) t_c f/f_e + 2 t_act) + 32 M_c/R] + t_cloud."""
        t_c, share = self.rates.step_seconds, self.place.client_work
        ways = 2 if self.place.gradients else 1
        step = share * t_c + (1 - share) * t_c / self.rates.edge_speed + ways * self.activation_seconds
        upload = 32 * self.place.client_parameters / self.rates.uplink_bps
        cloud = 32 * self.parameters / self.rates.cloud_bps
        return self.schedule.edge_rounds * (self.schedule.local_steps * step + upload) + cloud


def prices(model: Staged, batch: int, schedule: Schedule, rates: Rates, input_width: int = 1) -> list[Price]:
    """Price every place to cut a model, from 0 (inputs are sent, `input_width` bytes each) to top (nothing is)."""
    weights = jax.eval_shape(lambda: model.initialise(root(0)))
    places = [place_of(model, model.stages[:n], weights, input_width) for n in range(len(model.stages) + 1)]
    return [Price(place, model.parameters, batch, schedule, rates) for place in places]


def place_of(model: Staged, on_client: tuple[str, ...], weights: Any, input_width: int) -> Place:
    """Describe a cut after these stages. With none, inputs go up as they are stored, and nothing comes back."""
    dtype = jax.tree.leaves(weights)[0].dtype
    sample = jax.ShapeDtypeStruct((1, *model.input_shape), dtype)

    def run(stages: tuple[str, ...]) -> Callable[[Weights, Array], Array]:
        return lambda weights, x: model(weights, x, train=True, key=root(0), stages=stages)[0]

    mine = [w for path, w in weights.items() if model.stage_of(path) in on_client and path in model.trainable]
    work = multiply_adds(run(on_client), weights, sample) / multiply_adds(run(model.stages), weights, sample)
    numbers = math.prod(jax.eval_shape(run(on_client), weights, sample).shape)
    whole = on_client == model.stages
    return Place(
        name="top" if whole else on_client[-1] if on_client else "0",
        activations=0 if whole else numbers,
        client_parameters=sum(math.prod(w.shape) for w in mine),
        client_work=work,
        bits=8 * (dtype.itemsize if on_client else input_width),
        gradients=bool(on_client),
    )
