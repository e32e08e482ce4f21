"""FedProx (Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks, MLSys 2020).

    F_i(w) + (μ/2)‖w − a‖²,  so  w_i ← w_i − γ (g_i + μ(w_i − a))        every iteration

Symbols: μ = prox, a = the anchor. The paper has one server, whose model is a. In a hierarchy a is the edge's model that
the client began the edge round with (`prox_anchor=edge`), or the one its cell began the global round with, the cloud's
(`prox_anchor=cloud`). Where the upper half of a model is shared at the edge, the clients' half is held back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from fedge.core.contract import Algorithm, Gossip, ModelDescription
from fedge.errors import ConfigError


def proximal(
    algorithm: Algorithm, model: ModelDescription, *,
    prox: Annotated[float, Field(ge=0, le=1e6, description="μ of FedProx: holds clients back; 0: none")] = 0.0,
    prox_anchor: Annotated[Literal["edge", "cloud"], Field(
        description="what prox holds a client to: the model of its edge, or the cloud's"
    )] = "edge",
) -> Algorithm:  # fmt: skip
    if prox_anchor == "cloud" and isinstance(algorithm.exchange, Gossip):
        raise ConfigError(f"prox_anchor=cloud has no meaning for {algorithm.name}, which has no cloud; leave it out")
    if prox == 0:
        return algorithm
    return replace(algorithm, way=replace(algorithm.way, prox=prox, prox_to_round=prox_anchor == "cloud"))
