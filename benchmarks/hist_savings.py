"""Measure what a client of HIST saves: parameters held, bytes sent, multiply-adds and wall time per step, N = 1 … 5.

    python benchmarks/hist_savings.py [mlp|cnn|resnet18] > benchmarks/results/DATE-hist-savings-mlp.md

60 clients on the built-in images (CIFAR-sized noise for resnet18), five interleaved repeats; beside each number stands
what 1/N of the whole model would be.
"""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np

from fedge import Dataset
from fedge.cost.ledger import Ledger
from fedge.engine import Vectorised
from fedge.experiment.build import Experiment, experiment
from fedge.experiment.config import Config
from fedge.runner.device import prepare
from fedge.runner.environment import environment

CELLS = (1, 2, 3, 4, 5)
WORKLOADS = {
    "mlp": {"clients": 60, "batch": 50, "local_steps": 40, "edge_rounds": 1},
    "cnn": {"clients": 60, "batch": 10, "local_steps": 20, "edge_rounds": 1},
    "resnet18": {"clients": 10, "batch": 10, "local_steps": 1, "edge_rounds": 1},
}


def build(name: str, cells: int) -> Experiment:
    rng = np.random.default_rng(0)
    keys = {"algorithm": "hist", "model": name, "cells": cells, "partition": "iid"} | WORKLOADS[name]
    if name != "resnet18":
        return experiment(Config.of(keys))
    images = lambda n: (rng.integers(0, 256, (n, 32, 32, 3), np.uint8), rng.integers(0, 10, n))  # noqa: E731
    return experiment(Config.of(keys | {"data": "custom"}), Dataset.of(*images(200), *images(10)))


def size(ledger: Ledger) -> tuple[float, float]:
    """Return (parameters a client holds, bytes it sends in a global round), means over clients."""
    return ledger.cell_bytes(0).mean() / 4, ledger.round(0)["client_to_edge"].mean()


def main(name: str = "mlp", repeats: int = 5) -> None:
    prepare()
    made = {n: build(name, n) for n in CELLS}
    engines, seconds = {n: Vectorised(m.job) for n, m in made.items()}, {n: list[float]() for n in CELLS}
    for n, m in made.items():
        engines[n].round(m.start, 0)  # compiled and warm
    for _ in range(repeats):
        for n, m in made.items():
            began = time.perf_counter()
            engines[n].round(m.start, 1)
            seconds[n].append((time.perf_counter() - began) / m.job.steps_per_round)
    middle = {n: statistics.median(s) for n, s in seconds.items()}
    where = environment(0)
    print(f"# HIST's savings: {name}, {made[1].model.parameters:,} parameters\n")
    print(f"{where['processor']}, {len(where['devices'])} × {where['backend']}; jax {where['versions']['jax']}; median "
          f"of {repeats} interleaved repeats. Means over cells and clients.\n")  # fmt: skip
    print("| N | 1/N | parameters held | share | bytes sent per edge round | share | multiply-adds, share | "
          "µs per step (range) | share |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|")
    for n, m in made.items():
        ledger = m.clock.ledger
        held, sent = size(ledger)
        whole, all_sent = size(made[1].clock.ledger)
        low, high = (1e6 * f(seconds[n]) for f in (min, max))
        print(f"| {n} | {1 / n:.4f} | {held:,.0f} | {held / whole:.4f} | {sent:,.0f} | {sent / all_sent:.4f} | "
              f"{np.mean(m.clock.work):.4f} | {1e6 * middle[n]:.0f} ({low:.0f} to {high:.0f}) | "
              f"{middle[n] / middle[1]:.3f} |")  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:2])
