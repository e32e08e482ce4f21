"""Hold the planner's pick against a whole grid on two small networks, and count what each of them trains.

    python benchmarks/planner.py benchmarks/results/DATE-planner

Every setting of the grid is trained to the target, or up to `MOST` iterations; what it learns does not depend on the
network, so both networks share that. The planner is asked the same question on each, with its finals on fresh seeds
counted too. `DATE-planner.json` keeps every setting's cost, `DATE-planner.md` the comparison.
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

TARGET, MOST = 0.7, 1200
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


def grid(answer: Answer) -> tuple[dict[str, int | None], dict[str, int]]:
    """Train every setting; return the round after which each was at the target, and its client steps."""
    settings = dict(answer.every())
    configs = [Config.of(keys | {"rounds": max(1, MOST // (keys["local_steps"] * keys["edge_rounds"]))})
               for keys in settings.values()]  # fmt: skip
    dataset, reached, steps = load_data(configs[0]), dict[str, int | None](), dict[str, int]()
    names = list(settings)
    for place, rows in histories(configs, dataset, ProgramCache(8)):
        made = experiment(configs[place], dataset)
        assert made.target is not None
        found = made.target.reached(rows)
        reached[names[place]] = None if found is None else found.round
        steps[names[place]] = rows[-1]["round"] * made.job.steps_per_round
        print(f"grid {len(steps)}/{len(names)}: {names[place]} {reached[names[place]]}", file=sys.stderr, flush=True)
    return reached, steps


def costs(answer: Answer, reached: dict[str, int | None]) -> dict[str, float | None]:
    """Return the simulated seconds to the target of every setting of the grid on this network."""
    found: dict[str, float | None] = {}
    for name, keys in answer.every():
        rounds = reached[name]
        if rounds is None:
            found[name] = None
        else:
            found[name] = Trial(keys, experiment(Config.of(keys)), Energy(), 0).spent(rounds).seconds
    return found


def main(out: str) -> None:
    reached: dict[str, int | None] = {}
    steps: dict[str, int] = {}
    record: dict[str, Any] = {"fixed": FIXED, "choices": CHOICES, "most": MOST, "environment": environment(0)}
    lines = []
    for network, rates in NETWORKS.items():
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            answer = plan(FIXED | CHOICES | rates | {"settings": 1000}, out=Path(folder) / "plan")
            took = time.perf_counter() - began
            said = answer.to_json()
        if not steps:
            reached, steps = grid(answer)
        every = costs(answer, reached)
        there = {name: cost for name, cost in every.items() if cost is not None}
        best, pick = min(there, key=lambda name: there[name]), answer.recommended
        assert pick is not None
        record[network] = {"rates": rates, "planner": said, "grid": every, "grid_rounds": reached, "grid_steps": steps}
        lines.append(
            f"| {network} | {len(every)} | {best}: {there[best]:.4g} s | {pick}: {there[pick]:.4g} s | "
            f"{there[pick] / there[best] - 1:+.1%} | {sum(steps.values()):,} | {answer.steps:,} | "
            f"{answer.steps / sum(steps.values()):.1%} | {took:.0f} |"
        )
    Path(f"{out}.json").write_text(json.dumps(record, indent=1) + "\n")
    head = ("| network | settings | the grid's best | the planner's pick, as the grid has it | above the best | "
            "client steps: grid | planner | share | planner's seconds |")  # fmt: skip
    where = record["environment"]
    hardware = f"{where['processor']}, {len(where['devices'])} × {where['backend']}"
    what = f"Accuracy {TARGET:.0%} on the built-in images, {FIXED['clients']} clients in {FIXED['cells']} cells"
    Path(f"{out}.md").write_text("\n".join([
        "# The planner against a whole grid\n",
        f"{hardware}. {what}; the planner's steps include its finals on fresh seeds.\n",
        head, "|---|---|---|---|---|---|---|---|---|", *lines,
        "\nMade by `python benchmarks/planner.py`; every setting's cost is in the JSON beside this.\n",
    ]))  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:2])
