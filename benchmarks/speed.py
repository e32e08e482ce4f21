"""fedge beside a plain PyTorch loop, interleaved and repeated in one go; peak memory of 10,000 clients.

    make bench

Writes benchmarks/results/DATE-speed.json and .md. PyTorch lives in .venv-torch, which is made on first use.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import venv
from datetime import date
from pathlib import Path
from typing import Any

from fedge.runner.device import prepare
from fedge.runner.record import environment

HERE = Path(__file__).parent
Run = dict[str, float]
TORCH = os.environ.get("TORCH", "torch==2.13.0")
REPEATS = 5
# Multiply-adds really needed per client step, times two: forward and weight gradients of all layers, input gradients
# of all but the first. MLP, batch 50: 784·300 twice and 300·10 three times. CNN, batch 10: 144,000 twice and
# 320,000 + 16,000 + 500 three times.
FLOP = {"mlp": 2 * 50 * (2 * 784 * 300 + 3 * 3000), "cnn": 2 * 10 * (2 * 144_000 + 3 * 336_500)}
TARGETS = {"mlp": 3.0, "cnn": 2.5}


def torch_python() -> Path:
    folder = HERE.parent / ".venv-torch"
    if not (folder / "bin/python").exists():
        venv.create(folder, with_pip=True)
        subprocess.run([folder / "bin/pip", "install", "-q", TORCH, "numpy"], check=True)
    return folder / "bin/python"


def measure(python: Path | str, script: str, *words: str) -> Run:
    done = subprocess.run([python, HERE / script, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{script} {' '.join(words)} failed:\n{done.stderr}")
    return json.loads(done.stdout) if done.stdout else {}


def main() -> None:
    prepare()
    other = torch_python()
    runs: dict[str, list[Run]] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FEDGE_CACHE"] = folder  # the first repeat compiles, the others find what it compiled
        files = {name: str(Path(folder) / f"{name}.npz") for name in FLOP}
        for name, file in files.items():
            measure(sys.executable, "workloads.py", "dump", name, file)
        for number in range(REPEATS):
            print(f"repeat {number + 1} of {REPEATS} …", flush=True)
            runs.setdefault("gemm", []).append(measure(sys.executable, "workloads.py", "gemm"))
            for name, file in files.items():
                runs.setdefault(f"fedge {name}", []).append(
                    measure(sys.executable, "workloads.py", "fedge", name, file)
                )
                runs.setdefault(f"torch {name}", []).append(measure(other, "torch_loop.py", name, file))
        runs["memory"] = [measure(sys.executable, "workloads.py", "memory")]
    hardware = environment(0)
    report = describe(runs, hardware)
    stem = HERE / f"results/{date.today()}-speed"
    stem.parent.mkdir(exist_ok=True)
    stem.with_suffix(".md").write_text(report)
    stem.with_suffix(".json").write_text(json.dumps({"hardware": hardware, "runs": runs}, indent=1) + "\n")
    print(report)


def describe(runs: dict[str, list[Run]], hardware: dict[str, Any]) -> str:
    peak = max(r["gflops"] for r in runs["gemm"])
    rows, apart = [], []
    for name, target in TARGETS.items():
        ours, theirs = runs[f"fedge {name}"], runs[f"torch {name}"]
        fast, slow = ([r["steps_per_second"] for r in rs] for rs in (ours, theirs))
        ratio = [a / b for a, b in zip(fast, slow, strict=True)]
        share = statistics.median(fast) * FLOP[name] / 1e9 / peak
        cold, *warm = (r["compile_seconds"] for r in ours)
        rows.append(
            f"| {name} | {spread(fast, 0)} | {spread(slow, 0)} | {spread(ratio, 2)} | {target} | "
            f"{cold:.1f}, {statistics.median(warm):.1f} | {share:.0%} |"
        )
        apart.append(f"{max(r['largest_difference'] for r in theirs):.1e} ({name})")
    memory = runs["memory"][0]
    return f"""# Speed, {date.today()}

{hardware["processor"]}, {len(hardware["devices"])} host devices; jax {hardware["versions"]["jax"]}, \
Python {hardware["versions"]["python"]}, PyTorch {runs["torch mlp"][0]["torch"]} (one thread).
Made by `make bench`: {REPEATS} interleaved repeats, one process each; median (lowest to highest).

| workload | fedge, client steps/s | PyTorch loop | ratio in one repeat | target | compile s: cold, cached | of peak |
|---|---|---|---|---|---|---|
{chr(10).join(rows)}

Workloads: FedAvg on the built-in images; mlp: 784-300-10, 60 clients, batch 50, 40 steps × 5 rounds; cnn: 21,840
parameters, 50 clients, batch 10, 5 steps × 20 rounds. Both sides train on the same samples from the same initial
weights; the final models differ by at most {" and ".join(apart)}. GEMM peak, the best 2048³ float32 product in these
repeats: {peak:.0f} GFLOP/s; only multiplications that are needed are counted (no input gradient of the first layer).

10,000 clients of the MLP in 20 cells, one global round: peak resident memory {memory["peak_gb"]:.2f} GB, \
{memory["before_training_gb"]:.2f} GB of it before training
(target: under 2 GB); {memory["steps_per_second"]:,.0f} client steps/s at batch 6.
"""


def spread(values: list[float], digits: int) -> str:
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


if __name__ == "__main__":
    main()
