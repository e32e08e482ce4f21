"""Measure what a sweep saves over the same runs as single commands, interleaved in one go.

    python benchmarks/sweep.py > benchmarks/results/DATE-sweep.md             # 9 settings × 5 seeds, and 45 commands
    python benchmarks/sweep.py --settings 3 --seeds 2 --turns 3 > …           # a part of it

Each turn makes the sweep once (one process) and then every run by itself (a process each), with the same keys on
built-in data and `--draw none`; compiled programs are in the user's cache for both. Wall seconds and CPU seconds.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KEYS = ["clients=20", "cells=4", "rounds=5", "batch=10"]
RATES = ["0.01", "0.02", "0.03", "0.05", "0.07", "0.1", "0.15", "0.2", "0.3"]


def call(*words: str) -> tuple[float, float]:
    """Return the wall and CPU seconds of a command."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-m", "fedge", *words, "--draw", "none"], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, cpu


def turn(rates: list[str], seeds: int, folder: Path) -> tuple[list[float], list[float]]:
    """Make all runs as one sweep, then one by one; return wall and CPU seconds of each."""
    together = call(
        "sweep", "hierfavg", f"lr={','.join(rates)}", *KEYS, "--seeds", str(seeds), "--out", str(folder / "s")
    )
    wall = cpu = 0.0
    for rate in rates:
        for seed in range(seeds):
            out = str(folder / f"{rate}-{seed}")
            one = call("run", "hierfavg", f"lr={rate}", *KEYS, "--seed", str(seed), "--out", out)
            wall, cpu = wall + one[0], cpu + one[1]
    return list(together), [wall, cpu]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", type=int, default=len(RATES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=1)
    given = parser.parse_args()
    rates, found = RATES[: given.settings], []
    with tempfile.TemporaryDirectory() as folder:
        call("run", "hierfavg", *KEYS, "--out", f"{folder}/warm")  # compiled programs are there from now on
        for number in range(given.turns):
            place = Path(folder) / str(number)
            place.mkdir()
            found.append(turn(rates, given.seeds, place))
    runs = given.settings * given.seeds
    print(f"# A sweep of {given.settings} settings × {given.seeds} seeds beside {runs} commands\n")
    print(f"{os.cpu_count()} CPU cores, Python {sys.version.split()[0]}; {' '.join(KEYS)}; turns: {given.turns}.\n")
    print("| turn | sweep, s | single commands, s | times faster (wall) | sweep, CPU s | single, CPU s | times (CPU) |")
    print("|---|---|---|---|---|---|---|")
    for number, ((wall, cpu), (walls, cpus)) in enumerate(found, 1):
        print(
            f"| {number} | {wall:.1f} | {walls:.1f} | {walls / wall:.1f} | {cpu:.1f} | {cpus:.1f} | {cpus / cpu:.1f} |"
        )
    wall = statistics.median(b[0] / a[0] for a, b in found)
    said = "One turn" if given.turns == 1 else "Median"
    print(f"\n{said}: {wall:.1f} times faster by the clock. A shared machine: ratios count, seconds do not.\n")
    print(
        f"Made by `python benchmarks/sweep.py --settings {given.settings} --seeds {given.seeds} --turns {given.turns}`."
    )


if __name__ == "__main__":
    main()
