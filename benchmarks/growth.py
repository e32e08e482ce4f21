"""Measure time and memory as everything grows: clients, cells, parameters, edges of a gossip graph.

    make growth                 all four; about half an hour on 2 cores
    python benchmarks/growth.py clients cells

Each point is a process of its own: one global round after the first is timed, or, where it is short, two seconds of
them, five times (the median); the peak resident memory is that of the whole process. Compile seconds are few where a
compiled program was in the cache. Writes benchmarks/results/DATE-growth.json, .md and .png.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BASE = {"algorithm": "hierfavg", "model": "mlp", "partition": "drawn", "batch": 10, "local_steps": 1, "edge_rounds": 1,
        "cells": 10}  # fmt: skip
AXES: dict[str, tuple[str, list[int]]] = {
    "clients": ("hierfavg, 10 cells, 784-300-10 MLP, 10 samples of each client, batch 10, one step a round",
                [10**2, 10**3, 10**4, 10**5, 10**6]),
    "cells": ("hierfavg, 10,000 clients, otherwise the same", [1, 10, 100, 1000]),
    "parameters": ("hierfavg, 20 clients, MLP with a hidden layer of 12, 125, 1,257, 12,577 and 125,785 units",
                   [10**4, 10**5, 10**6, 10**7, 10**8]),
    "edges": ("sdfeel on a ring, one client for each edge, 784-12-10 MLP", [10, 100, 1000]),
}  # fmt: skip


LABELS = {"microseconds_per_client_step": "µs per client step", "peak_gb": "peak resident memory (GB)"}


def keys(axis: str, n: int) -> dict[str, Any]:
    match axis:
        case "clients":
            return {"clients": n}
        case "cells":
            return {"clients": 10_000, "cells": n}
        case "parameters":
            return {"clients": 20, "cells": 2}
        case _:
            return {"algorithm": "sdfeel", "clients": n, "cells": n, "graph": "ring"}


def point(axis: str, n: int) -> dict[str, Any]:
    from fedge.engine import Vectorised
    from fedge.experiment.build import experiment
    from fedge.experiment.config import Config
    from fedge.models import make
    from fedge.runner.device import prepare

    prepare()
    hidden = {"parameters": max(1, (n - 10) // 795), "edges": 12}.get(axis, 300)
    model = make("mlp", (28, 28, 1), 10, hidden=hidden) if hidden != 300 else None
    began = time.perf_counter()
    made = experiment(Config.of(BASE | keys(axis, n)), model=model)
    ready = time.perf_counter() - began
    engine = Vectorised(made.job)
    state, _ = engine.rounds(made.start, 0, 1)

    def timed(rounds: int) -> float:
        began = time.perf_counter()
        engine.rounds(state, 1, rounds)
        return (time.perf_counter() - began) / rounds

    seconds = timed(1)
    if seconds < 2:  # too short to be timed, so two seconds of them, and the middle one of five such times
        seconds = statistics.median(timed(int(2 / seconds) + 1) for _ in range(5))
    return {
        "n": n,
        "parameters": made.model.parameters,
        "client_steps": made.job.steps_per_round,
        "seconds_to_set_up": ready,
        "compile_seconds": engine.compile_seconds,
        "microseconds_per_client_step": 1e6 * seconds / made.job.steps_per_round,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[2].isdigit():
        print(json.dumps(point(sys.argv[1], int(sys.argv[2]))))
        return
    found: dict[str, list[dict[str, Any]]] = {}
    for axis in sys.argv[1:] or AXES:
        for n in AXES[axis][1]:
            print(f"{axis} {n:,} …", flush=True)
            done = subprocess.run([sys.executable, __file__, axis, str(n)], capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(done.stderr[-3000:])
            found.setdefault(axis, []).append(json.loads(done.stdout))
    write(found)


def write(found: dict[str, list[dict[str, Any]]]) -> None:
    from matplotlib.figure import Figure

    from fedge.runner.device import prepare
    from fedge.runner.environment import environment
    from fedge.view import plots

    prepare()
    hardware = environment(0)
    stem = HERE / f"results/{date.today()}-growth"
    if (old := stem.with_suffix(".json")).exists():  # axes measured earlier today stay
        found = {a: rows for a, rows in (json.loads(old.read_text())["points"] | found).items() if a in AXES}
    versions = hardware["versions"]
    text = [f"# Growth, {date.today()}", "", f"{hardware['processor']}, {len(hardware['devices'])} cores, jax "
            f"{versions['jax']}. Made by `make growth`."]  # fmt: skip
    for axis, rows in found.items():
        text += ["", f"## {axis}: {AXES[axis][0]}", "",
                 f"| {axis} | model's parameters | µs per client step | set-up s | compile s | peak GB |",
                 "|---|---|---|---|---|---|"]  # fmt: skip
        text += [
            f"| {r['n']:,} | {r['parameters']:,} | {r['microseconds_per_client_step']:,.0f} | "
            f"{r['seconds_to_set_up']:.1f} | {r['compile_seconds']:.1f} | {r['peak_gb']:.2f} |"
            for r in rows
        ]
    stem.with_suffix(".md").write_text("\n".join(text) + "\n")
    stem.with_suffix(".json").write_text(json.dumps({"hardware": hardware, "points": found}, indent=1) + "\n")
    figure = Figure(figsize=(3.4 * len(found), 5.2), layout="constrained")
    panels = figure.subplots(2, len(found), squeeze=False, sharex="col")
    for column, (axis, rows) in enumerate(found.items()):
        for row, (name, label) in enumerate(LABELS.items()):
            axes = panels[row, column]
            axes.plot([r["n"] for r in rows], [r[name] for r in rows], marker="o", color=plots.COLOURS[row])
            axes.set_xscale("log")
            axes.set_ylabel(label if column == 0 else "")
            if axis == "parameters":
                axes.set_yscale("log")
            else:
                axes.set_ylim(0, 1.1 * max(r[name] for r in rows))
            axes.grid(alpha=0.25)
        panels[1, column].set_xlabel(axis)
    plots.save(figure, stem)
    print("\n".join(text))


if __name__ == "__main__":
    main()
