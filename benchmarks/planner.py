"""Hold the planner's pick against a whole grid on two small networks, and count what each of them trains.

    python benchmarks/planner.py benchmarks/results/DATE-planner

Every setting of the grid is trained to the target, or up to `MOST` iterations, on each of `SEEDS`; what it learns does
not depend on the network, so both networks share that. The planner is asked the same question on each network with
each of these seeds, its finals on fresh seeds counted too. Its pick is held against the best of the grid of its own
seed, and by its mean over all of the grid's seeds against the best mean. `DATE-planner.json` keeps every setting's
cost, `DATE-planner.md` the comparison.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fedge.experiment.build import experiment
from fedge.experiment.config import Config
from fedge.experiment.own import load_data
from fedge.runner.cache import ProgramCache
from fedge.runner.environment import environment
from fedge.studies.answer import Answer
from fedge.studies.planner import plan
from fedge.studies.stacked_runs import histories
from fedge.studies.trials import Energy, Trial

TARGET, MOST, SEEDS = 0.7, 1200, (0, 1, 2)
FIXED = {"clients": 12, "cells": 4, "partition": "dirichlet", "codec": "none", "target": TARGET}
CHOICES: dict[str, Any] = {
    "algorithm": ["fedavg", "hierfavg", "hist", "hiersfl", "sdfeel"], "lr": [0.02, 0.05, 0.1, 0.2],
    "local_steps": [2, 5, 20], "edge_rounds": [1, 4], "gossip": 1, "graph": "ring", "submodels": 4, "cut": "hidden",
}  # fmt: skip
NETWORKS: dict[str, dict[str, float]] = {
    "the SD-FEEL paper's": {},
    "slow devices, a thin uplink, a fast backhaul": {
        "cpu_hz": 2e7, "edge_hz": 4e9, "uplink_bps": 1e6, "edge_bps": 2e6, "cloud_bps": 1e8, "device_spread": 0.5,
    },
}  # fmt: skip


def grid(answer: Answer, seed: int) -> tuple[dict[str, int | None], int]:
    """Train every setting on a seed; return the round after which each was at the target, and all client steps."""
    settings = {name: keys | {"seed": seed} for name, keys in answer.every()}
    configs = [Config.of(keys | {"rounds": max(1, MOST // (keys["local_steps"] * keys["edge_rounds"]))})
               for keys in settings.values()]  # fmt: skip
    dataset, reached, steps = load_data(configs[0]), dict[str, int | None](), 0
    names = list(settings)
    for place, rows in histories(configs, dataset, ProgramCache(8)):
        made = experiment(configs[place], dataset)
        assert made.target is not None
        found = made.target.reached(rows)
        reached[names[place]] = None if found is None else found.round
        steps += rows[-1]["round"] * made.job.steps_per_round
        print(f"grid of seed {seed}: {len(reached)}/{len(names)}", file=sys.stderr, flush=True)
    return reached, steps


def costs(answer: Answer, seed: int, reached: dict[str, int | None]) -> dict[str, float]:
    """Return the simulated seconds to the target of every setting that reached it, on this network and seed."""
    found: dict[str, float] = {}
    for name, keys in answer.every():
        if (rounds := reached[name]) is not None:
            own = keys | {"seed": seed}
            found[name] = Trial(own, experiment(Config.of(own)), Energy(), 0).spent(rounds).seconds
    return found


def above(pick: str, cost: dict[str, float]) -> str:
    """Write how much more the pick costs than the best."""
    best = min(cost, key=lambda name: cost[name])
    if pick not in cost:
        return f"did not get there | {best}: {cost[best]:.4g} s"
    return f"{cost[pick]:.4g} s, {cost[pick] / cost[best] - 1:+.1%} | {best}: {cost[best]:.4g} s"


def main(out: str) -> None:
    grids: dict[int, tuple[dict[str, int | None], int]] = {}
    record: dict[str, Any] = {"fixed": FIXED, "choices": CHOICES, "most": MOST, "environment": environment(0)}
    lines = []
    for network, rates in NETWORKS.items():
        answers, took = dict[int, Answer](), dict[int, float]()
        for seed in SEEDS:
            with tempfile.TemporaryDirectory() as folder:
                began = time.perf_counter()
                asked = FIXED | CHOICES | rates | {"settings": 1000, "seed": seed}
                answers[seed] = plan(asked, out=Path(folder) / "plan")
                took[seed] = time.perf_counter() - began
        for seed in SEEDS:
            if seed not in grids:
                grids[seed] = grid(answers[seed], seed)
        every = {seed: costs(answers[seed], seed, grids[seed][0]) for seed in SEEDS}
        shared = set.intersection(*(set(cost) for cost in every.values()))
        mean = {name: sum(cost[name] for cost in every.values()) / len(SEEDS) for name in shared}
        for seed, answer in answers.items():
            pick = answer.recommended
            assert pick is not None
            steps = grids[seed][1]
            share = f"{answer.steps:,} of {steps:,} ({answer.steps / steps:.1%})"
            lines.append(f"| {network} | {seed} | {pick} | {above(pick, every[seed])} | {above(pick, mean)} | "
                         f"{share} | {took[seed]:.0f} |")  # fmt: skip
        record[network] = {"rates": rates, "planner": {seed: one.to_json() for seed, one in answers.items()},
                           "grid": every, "grid_rounds": {seed: found for seed, (found, _) in grids.items()},
                           "grid_steps": {seed: steps for seed, (_, steps) in grids.items()}}  # fmt: skip
    Path(f"{out}.json").write_text(json.dumps(record, indent=1) + "\n")
    head = ("| network | seed | the planner's pick | on that seed's grid | the grid's best | "
            "in the mean over seeds | the best mean | client steps: planner of grid | planner's seconds |")  # fmt: skip
    where = record["environment"]
    hardware = f"{where['processor']}, {len(where['devices'])} × {where['backend']}"
    settings = len(next(iter(grids.values()))[0])
    what = f"Accuracy {TARGET:.0%} on the built-in images, {FIXED['clients']} clients in {FIXED['cells']} cells"
    Path(f"{out}.md").write_text("\n".join([
        "# The planner against a whole grid\n",
        f"{hardware}. {what}; {settings} settings. The planner's steps include its finals on fresh seeds.",
        f"Means are over seeds {', '.join(map(str, SEEDS))}, of settings that got there on all of them.\n",
        head, "|---" * 9 + "|", *lines,
        "\nMade by `python benchmarks/planner.py`; every setting's cost is in the JSON beside this.\n",
    ]))  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:2])
