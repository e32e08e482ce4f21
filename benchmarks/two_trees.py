"""Is a change slower? Two checkouts run the same workload in turns, on one core.

    python benchmarks/two_trees.py BEFORE NOW [REPEATS]     folders of the two checkouts; prints a table
    python benchmarks/two_trees.py one TREE LOAD            one process of it: prints one JSON object

Steps are counted per second of processor time, which other work on the machine disturbs less than time by the clock;
the training loss says whether both computed the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

LOADS = ("mlp", "cnn")


def one(tree: str, load: str) -> dict[str, Any]:
    """Measure the rounds after the first, with a tree's own fedge and its own workloads."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    sys.path[:0] = [f"{tree}/src", f"{tree}/benchmarks"]
    import workloads

    from fedge.engine import Vectorised
    from fedge.runner.device import prepare

    prepare(1)
    made = workloads.build(load, devices=1)
    engine, rounds = Vectorised(made.job), made.config.rounds
    state, _ = engine.rounds(made.start, 0, 1)
    used, began = time.process_time(), time.perf_counter()
    state, loss = engine.rounds(state, 1, rounds - 1)
    steps = made.job.steps_per_round * (rounds - 1)
    found = {"per_processor_second": steps / (time.process_time() - used)}
    return found | {"per_second": steps / (time.perf_counter() - began), "train_loss": loss}


def measure(before: str, now: str, repeats: int) -> None:
    print("| | before | now | now / before | pair by pair | train loss |\n|---|---|---|---|---|---|")
    for load in LOADS:
        found: dict[str, list[dict[str, Any]]] = {before: [], now: []}
        for tree in (before, now) * repeats:
            done = subprocess.run(
                [sys.executable, __file__, "one", str(Path(tree).resolve()), load], capture_output=True, check=True
            )
            found[tree].append(json.loads(done.stdout))
        old, new = ([x["per_processor_second"] for x in found[tree]] for tree in (before, now))
        pairs = ", ".join(f"{b / a:.3f}" for a, b in zip(old, new, strict=True))
        losses = sorted({x["train_loss"] for tree in found for x in found[tree]})
        ratio = f"{median(old):,.0f} | {median(new):,.0f} | {median(new) / median(old):.3f}"
        print(f"| {load} | {ratio} | {pairs} | {losses} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "one":
        print(json.dumps(one(sys.argv[2], sys.argv[3])))
    else:
        measure(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 5)
