"""Optimisers at the edges, which take what an edge round changed for a gradient, as `server.py` does in the cloud.

    g_d ← w_d − w̄_d                                       w̄_d = what edge d made of its clients' models
    w_d ← step(w_d, g_d)                                  momentum, adam, yogi, adagrad: the equations of `server.py`

after every edge round, over trainable paths and, where a cell owns a part of a tensor (HIST), over that part only.
What an edge remembers is 0 (or where `server.py` lets it begin) at the beginning of each global round, as clients'
optimisers begin anew in each edge round: whoever is dealt a new model leaves nothing behind. So nothing of it is kept
between global rounds, nor in checkpoints; and with one edge round to a global round nothing is ever remembered, so that
momentum with η = 1 is then the plain algorithm whatever β is. With β = 0 and η = 1 it always is, up to rounding:
w − (w − w̄) is not w̄ to the bit.

The paper of server optimisers (see `server.py`) has one server; this is its step in each cell of a hierarchy. MTGC is
refused: its y_d sums (w_d − w)/(HEγ), means of gradients only where cells' models move by the gradients' plain sum.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

import jax.numpy as jnp
from pydantic import Field

from fedge.core.contract import Algorithm, Direct, ModelDescription
from fedge.core.tree import Weights, split
from fedge.core.update import EdgeServer
from fedge.errors import ConfigError
from fedge.updates.mtgc import MTGC
from fedge.updates.server import RATES, server_step, step_towards


def stepped_at_edges(
    algorithm: Algorithm, model: ModelDescription, *,
    edge_server: Annotated[Literal["none", "momentum", "adam", "yogi", "adagrad"], Field(
        description="optimiser at each edge, which takes what an edge round changed for a gradient"
    )] = "none",
    edge_server_lr: Annotated[float | None, Field(
        gt=0, le=1e6, description="step size of the edges' optimiser; unless given, 1 for momentum, else 0.01"
    )] = None,
    edge_server_beta1: Annotated[float, Field(ge=0, lt=1, description="momentum of the edges' optimiser")] = 0.9,
    edge_server_beta2: Annotated[float, Field(
        ge=0, lt=1, description="memory of squares of the edges' optimiser"
    )] = 0.99,
    edge_server_eps: Annotated[float, Field(gt=0, le=1e6, description="τ of the edges' optimiser")] = 1e-3,
) -> Algorithm:  # fmt: skip
    if edge_server == "none":
        return algorithm
    name = algorithm.name
    if isinstance(algorithm.exchange, Direct):
        raise ConfigError(f"edge_server={edge_server} has no meaning for {name}, which has no edges; take server")
    if algorithm.shared is not None:
        raise ConfigError(
            f"edge_server={edge_server} is not for {name}: the half that its edges hold is stepped by the mean "
            "gradient already; leave edge_server out"
        )
    if algorithm.way.correction is MTGC:
        raise ConfigError(
            f"edge_server={edge_server} is not for correction=mtgc, which learns from how far plain means moved a "
            "cell's model; leave one of them out, or take correction=scaffold"
        )
    lr = edge_server_lr or RATES[edge_server]
    optimiser = server_step(edge_server, lr, edge_server_beta1, edge_server_beta2, edge_server_eps)

    def start(w: Weights) -> Any:
        return optimiser.init(split(w, model.trainable.__contains__)[0])

    def step(w: Weights, combined: Weights, mask: Weights | None, moments: Any) -> tuple[Weights, Any]:
        after, moments = step_towards(optimiser, model.trainable, w, combined, moments)
        # What is not the cell's own has no gradient, but yogi's m begins at 10⁻⁶.
        owned = {path: jnp.where(m > 0, after[path], combined[path]) for path, m in (mask or {}).items()}
        return after | owned, moments

    way = replace(algorithm.way, edge_server=EdgeServer(edge_server, start, step))
    return replace(algorithm, way=way, stale_statistics=True)
