"""At which cut does splitting a model beat sending it?

A client of a split model uploads, per edge round, the activations of τ1 minibatches and its own half; otherwise the
whole model. Splitting sends less iff τ1·b·a + M_c < M, a the activations of a sample at the cut, M_c the client's
parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedge.core.schedule import Schedule
from fedge.cost.clock import Rates


@dataclass(frozen=True)
class Place:
    """A place to cut: what a sample's activations are there, and what of the model is below."""

    name: str
    activations: int  # a: numbers per sample; 0 where a client computes its own loss
    client_parameters: int  # M_c
    client_work: float  # φ: share of the multiply-adds
    bits: int = 32  # of one activation on its way up
    gradients: bool = True  # whether they come back down


@dataclass(frozen=True)
class Price:
    """What a cut costs a client per global round, at a batch size, a schedule and a network."""

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
        """The same for clients that hold the whole model."""
        return self.schedule.edge_rounds * 32 * self.parameters

    @property
    def activation_seconds(self) -> float:
        """t_act: a minibatch's activations, one way."""
        return self.place.bits * self.place.activations * self.batch / self.rates.uplink_bps

    @property
    def round_seconds(self) -> float:
        """τ2[τ1(φ t_c + (1−φ) t_c f/f_e + 2 t_act) + 32 M_c/R] + t_cloud."""
        t_c, share = self.rates.step_seconds, self.place.client_work
        ways = 2 if self.place.gradients else 1
        step = share * t_c + (1 - share) * t_c / self.rates.edge_speed + ways * self.activation_seconds
        upload = 32 * self.place.client_parameters / self.rates.uplink_bps
        cloud = 32 * self.parameters / self.rates.cloud_bps
        return self.schedule.edge_rounds * (self.schedule.local_steps * step + upload) + cloud
