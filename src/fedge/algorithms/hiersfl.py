"""HierSFL, hierarchical split federated learning (from its proof supplement of 21 April 2024).

The model is cut after a stage: clients hold the lower half r, their edge the upper half s. At every iteration a client
sends the activations of its minibatch and the labels up and gets the gradient at the cut back (`core/split.py`).

    r_i ← r_i − η ∂f_i/∂r                                 every iteration
    s_d ← s_d − η Σ_{i∈d} (1/n_d) ∂f_i/∂s                 every iteration: one server half per cell
    r_d ← (1/n_d) Σ_{i∈d} r_i                             at the edge every τ1, then back to its clients
    r, s ← Σ_d (n_d/n) r_d, s_d                           in the cloud every τ1·τ2, then broadcast

    client half:  T_k = A if τ1τ2 | k;  H1 if τ1 | k;  else I
    server half:  T_k = A if τ1τ2 | k;  else H1

Symbols: τ1 = local_steps, τ2 = edge_rounds, L_c = cut, the last stage on the client (`0`: clients send their inputs;
`top`: clients hold the whole model). Weights are uniform over clients, m_i = 1/n.

The supplement's (9) keeps a copy of the server half per client and averages the copies at every iteration
(`server_copies=per_client`). With plain SGD that is one shared half stepped by the mean gradient, which is what runs
unless asked otherwise. BatchNorm in the server half sees each client's minibatch by itself, not the cell's pooled one.

SplitFed-V2 steps the server half after each client, one after the other: another algorithm, here `hiersfl_v2`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from fedge.core import tree
from fedge.core.contract import Algorithm, Cloud, Knobs, ModelDescription, Round, Sharing, Stack
from fedge.core.schedule import Schedule
from fedge.core.topology import Matrix, Topology
from fedge.core.tree import Weights
from fedge.errors import ConfigError, unknown

TOP, BOTTOM = "top", "0"


Cut = Annotated[
    str | None,
    BeforeValidator(lambda cut: str(cut) if type(cut) is int and cut == 0 else cut),  # cut=0 in TOML and Python
    Field(description="last client-side stage of a split model; 0: none, top: all; unless given, the first"),
]
Messages = Annotated[bool, Field(description="split steps by explicit messages: the same model, slower")]


def hiersfl(
    knobs: Knobs, topology: Topology, model: ModelDescription, *,
    cut: Cut = None,
    server_copies: Annotated[Literal["shared", "per_client"], Field(
        description="hiersfl's server half: one per cell, or one per client, averaged every iteration"
    )] = "shared",
    messages: Messages = False,
) -> Algorithm:  # fmt: skip
    topology = topology.uniform()
    schedule = Schedule(knobs.local_steps, knobs.edge_rounds)
    on_client = client_stages(model, cut)
    for path in sorted(model.trainable):
        if model.stage_of(path) not in model.stages:
            raise ConfigError(
                f"parameter '{path}' belongs to no stage of the model; add its prefix to one of its `stages`"
            )
    every_cell = tuple(range(topology.cells))

    def at_edge(path: str) -> bool:
        return model.stage_of(path) not in on_client

    def deal(w: Weights, now: Round) -> tuple[Stack, ...]:
        return (Stack(every_cell, tree.repeat(w, topology.cells)),)

    def merge(w: Weights, stacks: tuple[Stack, ...], now: Round) -> Weights:
        return tree.weighted_sum(now.cell_weight, stacks[0].weights)

    def operator(k: int, path: str) -> Matrix:
        if schedule.is_global(k):
            return topology.cloud_operator
        return topology.edge_operator if schedule.is_edge(k) or at_edge(path) else topology.identity

    return Algorithm(
        name="hiersfl",
        topology=topology,
        schedule=schedule,
        start=lambda w: w,
        deal=deal,
        merge=merge,
        evaluated=lambda w, _: w,
        operator=operator,
        exchange=Cloud(),
        shared=at_edge,
        sharing=Sharing.COPIES if server_copies == "per_client" else Sharing.MEAN,
        messages=messages,
        client_stages=on_client,
        cloud_mean=True,
    )


def hiersfl_v2(
    knobs: Knobs, topology: Topology, model: ModelDescription, *, cut: Cut = None, messages: Messages = False
) -> Algorithm:
    """The server half is stepped by one client after the other, in the order they are drawn in: no T_k says that."""
    return replace(
        hiersfl(knobs, topology, model, cut=cut, messages=messages),
        name="hiersfl_v2",
        sharing=Sharing.SEQUENTIAL,
        operator=None,
    )


def client_stages(model: ModelDescription, cut: str | None) -> tuple[str, ...]:
    """Return the stages up to the cut; the first one, unless a cut is given."""
    if len(model.stages) == 1 and cut not in (BOTTOM, TOP, *model.stages):
        raise ConfigError(
            "hiersfl cuts a model between its stages, but this one has only one; give its module an attribute `stages` "
            "(stage → parameter prefixes) and a method `stage(name, x)`, or choose cut=0 or cut=top"
        )
    if cut == BOTTOM:
        return ()
    if cut == TOP:
        return model.stages
    cut = cut or model.stages[0]
    if cut not in model.stages:
        raise ConfigError(unknown("cut", cut, [BOTTOM, *model.stages, TOP]))
    return model.stages[: model.stages.index(cut) + 1]
