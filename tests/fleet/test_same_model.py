"""A fleet ends with the simulator's model: 1e-12 in float64, 1e-6 in float32."""

from contextlib import nullcontext

import jax
import pytest

from fedge.engine import Reference
from tests.fleet.in_process import fleet
from tests.helpers import distance, small

ROUNDS = 2


def compare(made, **how):
    """Return how far a fleet's model is from the naive engine's, and the fleet."""
    state, loss = Reference(made.job).rounds(made.start, 0, ROUNDS)
    with fleet(made, **how) as found:
        ours, same = found.cloud.rounds(found.work.made.start, 0, ROUNDS)
        assert same == pytest.approx(loss, rel=1e-5 if made.config.dtype == "float32" else 1e-12)
        assert measured(found) == predicted(made)  # to the byte
    return distance(made.evaluated(ours), made.evaluated(state))


def measured(found):
    """Return each tier's payload as it was counted by those that were dialled."""
    total = {}
    for hub in found.hubs.values():
        for tier, count in hub.tally.totals().items():
            total[tier] = total.get(tier, 0) + count.payload
    return {tier: size for tier, size in total.items() if size and "monitor" not in tier}


def predicted(made):
    total = {}
    for index in range(ROUNDS):
        for tier, links in made.clock.ledger.round(index).items():
            total[tier] = total.get(tier, 0) + int(links.sum())
    return {tier: size for tier, size in total.items() if size}


CASES = {  # cells are unequal throughout: 7 clients in 3, with different numbers of samples
    "scaffold with topk": {"algorithm": "scaffold", "participation": 0.6, "server": "adam", "codec": "topk:0.1"},
    "hierfavg": {"momentum": 0.9, "codec": "qsgd8", "down_codec": "int8", "cloud_codec": "qsgd4", "prox": 0.5},
    "rules": {
        "edge_rule": "median",
        "cloud_rule": "median",
        "participation": 0.7,
        "server": "momentum",
        "prox": 0.5,
        "prox_anchor": "cloud",
        "down_codec": "int8",
    },
    "hist": {"algorithm": "hist", "cells": 3, "codec": "qsgd8", "edge_server": "yogi"},  # 300 units and 10 biases
    "sdfeel": {"algorithm": "sdfeel", "graph": "path", "gossip": 2, "codec": "int8", "edge_server": "momentum"},
    "hiersfl": {"algorithm": "hiersfl", "momentum": 0.9, "codec": "int8"},
    "hiersfl one after the other": {
        "algorithm": "hiersfl_v2",
        "participation": 0.7,
        "prox": 0.5,
        "prox_anchor": "cloud",
    },
    "hiersfl with copies": {"algorithm": "hiersfl", "server_copies": "per_client", "momentum": 0.9},
    "hiersfl without client stages": {"algorithm": "hiersfl", "cut": "0"},
    "batchnorm on both sides": {
        "algorithm": "hiersfl",
        "model": "shallow",
        "clients": 4,
        "cells": 2,
        "cut": "layer1",
        "lr": 0.01,
    },
    "hist in groups": {"algorithm": "hist", "submodels": 2, "prox": 0.5, "prox_anchor": "cloud"},
    "scaffold at edges": {"correction": "scaffold", "codec": "qsgd8", "participation": 0.7, "server": "adam"},
    "scaffold without a cloud": {"algorithm": "sdfeel", "correction": "scaffold", "graph": "path"},
    "mtgc": {"algorithm": "mtgc", "codec": "topk:0.2", "prox": 0.5, "prox_anchor": "cloud"},
}


SINGLE = {"fedavg": {"algorithm": "fedavg"}, **{case: CASES[case] for case in ("hierfavg", "sdfeel", "hiersfl")}}
BOTH = {"float64": CASES, "float32": SINGLE}


@pytest.mark.parametrize(("case", "dtype"), [(case, dtype) for dtype, cases in BOTH.items() for case in cases])
def test_a_fleet_ends_with_the_simulators_model(case, dtype):
    with jax.enable_x64(True) if dtype == "float64" else nullcontext():
        assert compare(small(dtype=dtype, devices=1, **BOTH[dtype][case])) < (1e-12 if dtype == "float64" else 1e-6)
