"""HierFAVG (Liu, Zhang, Song, Letaief: Client-Edge-Cloud Hierarchical Federated Learning, ICC 2020).

    w_i ← w_i − η g_i                                     every iteration
    w_d ← Σ_{i∈d} (m_i/m̃_d) w_i,  m_i = |S_i|/|S|         at the edge every τ1, then back to its clients
    w   ← Σ_d m̃_d w_d                                     in the cloud every τ1·τ2, then broadcast

    T_k = A if τ1τ2 | k;  H1 if τ1 | k;  else I

Symbols: κ1 = τ1 = local_steps, κ2 = τ2 = edge_rounds.

HFedAvg, the baseline of the HIST paper, is the same with m_i = 1/(N·n_d): every cell counts the same.
"""

from __future__ import annotations

from dataclasses import replace

from fedge.core import tree
from fedge.core.contract import Algorithm, Cloud, Knobs, ModelDescription, Round, Stack
from fedge.core.schedule import Schedule
from fedge.core.topology import Matrix, Topology
from fedge.core.tree import Weights


def hierfavg(knobs: Knobs, topology: Topology, model: ModelDescription) -> Algorithm:
    schedule = Schedule(knobs.local_steps, knobs.edge_rounds)
    every_cell = tuple(range(topology.cells))

    def deal(w: Weights, now: Round) -> tuple[Stack, ...]:
        return (Stack(every_cell, tree.repeat(w, topology.cells)),)

    def merge(w: Weights, stacks: tuple[Stack, ...], now: Round) -> Weights:
        return tree.weighted_sum(now.cell_weight, stacks[0].weights)

    def operator(k: int, path: str) -> Matrix:
        if schedule.is_global(k):
            return topology.cloud_operator
        return topology.edge_operator if schedule.is_edge(k) else topology.identity

    return Algorithm(
        name="hierfavg",
        topology=topology,
        schedule=schedule,
        start=lambda w: w,
        deal=deal,
        merge=merge,
        evaluated=lambda w, _: w,
        operator=operator,
        exchange=Cloud(),
        cloud_mean=True,
    )


def hfedavg(knobs: Knobs, topology: Topology, model: ModelDescription) -> Algorithm:
    return replace(hierfavg(knobs, topology.uniform_cells(), model), name="hfedavg")
