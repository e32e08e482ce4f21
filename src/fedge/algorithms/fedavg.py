"""FedAvg (McMahan et al., AISTATS 2017): clients average in the cloud, with no edge in between.

    w_i ← w_i − η g_i                         τ times
    w   ← Σ_i m_i w_i,  m_i = |S_i|/|S|       in the cloud, then broadcast        T_k = A if τ | k, else I

Symbols: τ = local_steps × edge_rounds, so that one global round is as many iterations here as in the hierarchical
algorithms it is compared with. The paper draws a fraction C of the clients each round: that is `participation`.
"""

from __future__ import annotations

from fedge.core import tree
from fedge.core.contract import Algorithm, Direct, Knobs, ModelDescription, Round, Stack
from fedge.core.schedule import Schedule
from fedge.core.topology import Matrix, Topology
from fedge.core.tree import Weights


def fedavg(knobs: Knobs, topology: Topology, model: ModelDescription) -> Algorithm:
    flat = topology.one_cell()
    schedule = Schedule(local_steps=knobs.local_steps * knobs.edge_rounds, edge_rounds=1)

    def deal(w: Weights, now: Round) -> tuple[Stack, ...]:
        return (Stack((0,), tree.repeat(w, 1)),)

    def merge(w: Weights, stacks: tuple[Stack, ...], now: Round) -> Weights:
        # The only "cell" is the cloud's own, so its weighted mean over the clients is the new global model.
        return {path: x[0] for path, x in stacks[0].weights.items()}

    def operator(k: int, path: str) -> Matrix:
        return flat.cloud_operator if schedule.is_global(k) else flat.identity

    return Algorithm(
        name="fedavg",
        topology=flat,
        schedule=schedule,
        start=lambda w: w,
        deal=deal,
        merge=merge,
        evaluated=lambda w, _: w,
        operator=operator,
        exchange=Direct(),
    )
