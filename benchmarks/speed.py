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

from fedge.runner.record import environment

HERE = Path(__file__).parent
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


def measure(python: Path | str, script: str, *words: str) -> dict[str, float]:
    done = subprocess.run([python, HERE / script, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{script} {' '.join(words)} failed:\n{done.stderr}")
    return json.loads(done.stdout) if done.stdout else {}


def main() -> None:
    other = torch_python()
    runs: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
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
    write(runs)


def write(runs: dict[str, list[dict[str, float]]]) -> None:
    hardware = environment(0)
    peak = max(r["gflops"] for r in runs["gemm"])
    lines = [
        f"# Speed, {date.today()}", "",
        f"{hardware['processor']}, {len(hardware['devices'])} × {hardware['devices'][0]}; "
        f"jax {hardware['versions']['jax']}, Python {hardware['versions']['python']}, "
        f"PyTorch {runs['torch mlp'][0]['torch']} (one thread). Made by `make bench`: {REPEATS} interleaved repeats, "
        "one process each; median (lowest to highest).", "",
        "| workload | fedge, client steps/s | PyTorch loop | ratio in one repeat | target | compile s | of GEMM peak |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for name in FLOP:
        ours, theirs = runs[f"fedge {name}"], runs[f"torch {name}"]
        fast, slow = ([r["steps_per_second"] for r in rs] for rs in (ours, theirs))
        ratio = [a / b for a, b in zip(fast, slow, strict=True)]
        share = statistics.median(fast) * FLOP[name] / 1e9 / peak
        compiled = statistics.median(r["compile_seconds"] for r in ours)
        lines.append(
            f"| {name} | {spread(fast, 0)} | {spread(slow, 0)} | {spread(ratio, 2)} | {TARGETS[name]} | "
            f"{compiled:.1f} | {share:.0%} |"
        )
        apart = max(r["largest_difference"] for r in theirs)
        lines.append("") if name == "cnn" else None
        runs[f"agreement {name}"] = [{"largest_difference": apart}]
    lines += [
        f"GEMM peak, the best 2048³ float32 product in these repeats: {peak:.0f} GFLOP/s. Both sides train on the same "
        "samples from the same initial weights; the final models differ by at most "
        + " and ".join(f"{runs[f'agreement {n}'][0]['largest_difference']:.1e} ({n})" for n in FLOP) + ".", "",
        f"10,000 clients of the MLP in 20 cells, one global round: peak resident memory "
        f"{runs['memory'][0]['peak_gb']:.2f} GB, {runs['memory'][0]['before_training_gb']:.2f} GB of it before training "
        f"(target: under 2 GB); {runs['memory'][0]['steps_per_second']:,.0f} client steps/s at batch 6.",
    ]  # fmt: skip
    folder = HERE / "results"
    folder.mkdir(exist_ok=True)
    stem = folder / f"{date.today()}-speed"
    stem.with_suffix(".md").write_text("\n".join(lines) + "\n")
    stem.with_suffix(".json").write_text(json.dumps({"hardware": hardware, "runs": runs}, indent=1) + "\n")
    print("\n".join(lines))


def spread(values: list[float], digits: int) -> str:
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


if __name__ == "__main__":
    main()
