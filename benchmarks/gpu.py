"""Measure fedge beside a plain PyTorch loop on one GPU.

    python benchmarks/gpu.py [FOLDER]       needs JAX and PyTorch for the GPU; writes FOLDER/DATE-gpu.json and .md

The workloads are those of `speed.py`, and ResNet-18 (BatchNorm) with 50 clients on random 32 × 32 images, batch 10, in
float32 (multiplied as TF32 on both sides) and in bfloat16 (`compute=bfloat16`; PyTorch: autocast). Both sides of the
MLP and the CNN train the same samples from the same weights, and the final models are compared (with TF32, so to fewer
digits than on a CPU); ResNet-18 is timed only. Each measurement is a process of its own; interleaved repeats,
REPEATS=3 of them.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedge.experiment.build import Experiment

HERE = Path(__file__).parent
REPEATS = int(os.environ.get("REPEATS", "3"))


def resnet_experiment(compute: str, rounds: int = 6) -> Experiment:
    import numpy as np

    from fedge import Dataset
    from fedge.experiment.build import experiment
    from fedge.experiment.config import Config
    from fedge.runner.device import prepare

    prepare()
    rng = np.random.default_rng(0)
    images = lambda n: (rng.integers(0, 256, (n, 32, 32, 3), np.uint8), rng.integers(0, 10, n))  # noqa: E731
    config = {"algorithm": "fedavg", "edge_rounds": 1, "clients": 50, "cells": 10, "model": "resnet18", "batch": 10,
              "local_steps": 5, "rounds": rounds, "data": "custom", "partition": "iid", "compute": compute}  # fmt: skip
    return experiment(Config.of(config), Dataset.of(*images(5000), *images(100), classes=10))


def resnet(compute: str = "dtype") -> dict[str, Any]:
    """Measure fedge's ResNet-18: steady client steps per second, and the floating-point operations of each."""
    import jax
    import numpy as np
    from workloads import steady

    from fedge.cost.work import multiply_adds

    made = resnet_experiment(compute)
    sample = jax.ShapeDtypeStruct((1, 32, 32, 3), np.float32)
    weights = jax.eval_shape(lambda: made.model.initialise(made.job.key))
    forward = multiply_adds(lambda w, x: made.model(w, x, train=True, key=made.job.key)[0], weights, sample)
    first = 32 * 32 * 27 * 64  # the first layer needs no input gradient
    found, _ = steady(made)
    return found | {"flop": 2 * 10 * (3 * forward - first)}


KINDS = {
    "convolution kernels": "convolution",
    "matrix products": "gemm|nvjet|cutlass|dot",
    "patches": "concatenate|select|pad|slice",
    "sums (normalisation, losses, averages)": "reduce",
    "elementwise (activations, gradients of patches, updates)": "",
}


def profile(compute: str) -> dict[str, float]:
    """Return the milliseconds of a step, by kind of GPU kernel."""
    import re

    import jax

    from fedge.engine import Vectorised

    made = resnet_experiment(compute)
    engine = Vectorised(made.job)
    state, _ = engine.rounds(made.start, 0, 1)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            engine.rounds(state, 1, 1)
        (file,) = Path(folder).rglob("*.xplane.pb")
        planes = jax.profiler.ProfileData.from_file(str(file)).planes
        events = [e for p in planes if "GPU" in p.name for line in p.lines if "tream" in line.name for e in line.events]
    found = dict.fromkeys(KINDS, 0.0)
    for event in events:
        kind = next(kind for kind, names in KINDS.items() if re.search(names, event.name))
        found[kind] += event.duration_ns / 1e6 / made.config.local_steps
    return found


def peak() -> dict[str, float]:
    """Measure the TFLOP/s of an 8192³ product, the best of twenty."""
    import jax
    import jax.numpy as jnp

    found = {}
    for name, dtype in (("bf16", jnp.bfloat16), ("tf32", jnp.float32)):
        a = jnp.ones((8192, 8192), dtype)
        product = jax.jit(lambda a: a @ a)
        product(a).block_until_ready()
        best = float("inf")
        for _ in range(20):
            began = time.perf_counter()
            product(a).block_until_ready()
            best = min(best, time.perf_counter() - began)
        found[name] = 2 * 8192**3 / best / 1e12
    return found


def bare() -> dict[str, float]:
    """Time a process from its start that imports JAX and doubles one number on the card: nobody starts faster."""
    import jax.numpy as jnp
    from clock import age

    (jnp.ones(()) + 1).block_until_ready()
    return {"seconds": age()}


def torch_resnet(half: bool = False, steps: int = 100) -> dict[str, float]:
    """Train in a plain loop: one client's steps after the other."""
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy, relu

    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn1, self.bn2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
            same = stride == 1 and inputs == outputs
            self.short = nn.Sequential() if same else nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))  # fmt: skip

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return relu(self.short(x) + self.bn2(self.conv2(relu(self.bn1(self.conv1(x))))))

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2),
              (512, 512, 1)]  # fmt: skip
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), *(Block(*w) for w in widths),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10),
    ).cuda()  # fmt: skip
    x, y = torch.randn(10, 3, 32, 32, device="cuda"), torch.arange(10, device="cuda")
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)

    def run(n: int) -> float:
        began = time.perf_counter()
        for _ in range(n):
            optimiser.zero_grad()
            with torch.autocast("cuda", torch.bfloat16, enabled=half):
                loss = cross_entropy(model(x), y)
            loss.backward()
            optimiser.step()
        torch.cuda.synchronize()
        return time.perf_counter() - began

    run(20)
    return {"steps_per_second": steps / run(steps)}


def measure(*words: Any) -> dict[str, Any]:
    began = time.perf_counter()
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))} failed:\n{done.stderr[-3000:]}")
    printed = json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {}
    return printed | {"wall_seconds": time.perf_counter() - began}


def main() -> None:
    if sys.argv[1:2] and sys.argv[1] in PARTS:
        print(json.dumps(PARTS[sys.argv[1]]()))
        return
    out = Path(sys.argv[1]) if sys.argv[1:] else HERE / "results"
    out.mkdir(exist_ok=True)
    runs: dict[str, list[dict[str, Any]]] = {}

    def take(name: str, *words: Any) -> None:
        """Take one measurement and write it down at once: what was measured is not lost if the rest is."""
        runs.setdefault(name, []).append(measure(*words))
        (out / f"{date.today()}-gpu.json").write_text(json.dumps(runs, indent=1) + "\n")
        print(name, {k: round(v, 4) for k, v in runs[name][-1].items() if isinstance(v, float)}, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        os.environ["FEDGE_CACHE"] = folder  # the first repeat compiles, the others find what it compiled
        take("peak", __file__, "peak")
        take("bare", __file__, "bare")
        files = {name: Path(folder) / f"{name}.npz" for name in ("mlp", "cnn")}
        for name, file in files.items():
            measure(HERE / "workloads.py", "dump", name, file)
        for repeat in range(REPEATS):
            for name in ("resnet18 bf16", "resnet18"):
                take(f"fedge {name}", __file__, f"fedge {name}")
                take(f"torch {name}", __file__, f"torch {name}")
                if not repeat:
                    take(f"profile {name}", __file__, f"profile {name}")
            for name, file in files.items():
                take(f"fedge {name}", HERE / "workloads.py", "fedge", name, file)
                take(f"torch {name}", HERE / "peers/torch_loop.py", name, file, "cuda")
    write(runs, out)


PARTS: dict[str, Callable[[], Any]] = {
    "peak": peak,
    "bare": bare,
    "fedge resnet18": resnet,
    "torch resnet18": torch_resnet,
    "fedge resnet18 bf16": lambda: resnet("bfloat16"),
    "torch resnet18 bf16": lambda: torch_resnet(half=True),
    "profile resnet18": lambda: profile("dtype"),
    "profile resnet18 bf16": lambda: profile("bfloat16"),
}


def write(runs: dict[str, list[dict[str, Any]]], out: Path) -> None:
    import jax
    import torch

    card, top = jax.devices()[0].device_kind, runs["peak"][0]
    text = [
        f"# One GPU, {date.today()}", "",
        f"{card}, jax {jax.__version__}, PyTorch {torch.__version__}. Made by `python benchmarks/gpu.py`: medians of "
        f"{REPEATS} interleaved repeats (lowest to highest). Matrix peak, 8192³: {top['bf16']:.0f} TFLOP/s in "
        f"bfloat16, {top['tf32']:.0f} in float32 as the card multiplies it by default (TF32).", "",
        "| | fedge, client steps/s | PyTorch loop | ratio in one repeat | compile s: cold, cached | "
        "first round trained, s: cold, cached | models differ by |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for name in ("mlp", "cnn", "resnet18", "resnet18 bf16"):
        ours, theirs = runs[f"fedge {name}"], runs[f"torch {name}"]
        ratio = [a["steps_per_second"] / b["steps_per_second"] for a, b in zip(ours, theirs, strict=True)]
        apart = f"{max(r['largest_difference'] for r in theirs):.0e}" if "largest_difference" in theirs[0] else ""
        compiled, trained = (
            f"{cold:.1f}, {statistics.median(warm or [cold]):.1f}"
            for cold, *warm in ([r[what] for r in ours] for what in ("compile_seconds", "first_round_seconds"))
        )
        text.append(
            f"| {name} | {spread(ours)} | {spread(theirs)} | {statistics.median(ratio):.0f} ({min(ratio):.0f} to "
            f"{max(ratio):.0f}) | {compiled} | {trained} | {apart} |"
        )
    middle = {
        name: statistics.median(r["steps_per_second"] for r in of)
        for name, of in runs.items()
        if "steps_per_second" in of[0]
    }
    text += [
        "",
        f"PyTorch's loop is not always faster in bfloat16; against its faster form ResNet-18 in bfloat16 makes "
        f"{middle['fedge resnet18 bf16'] / max(middle['torch resnet18'], middle['torch resnet18 bf16']):.0f} times "
        "the steps.",
        "",
        f"Seconds count from the start of the process; one that only imports JAX and adds on the card takes "
        f"{runs['bare'][0]['seconds']:.1f}.",
    ]
    for name, kind in (("resnet18", "tf32"), ("resnet18 bf16", "bf16")):
        used = middle[f"fedge {name}"] * runs[f"fedge {name}"][0]["flop"] / 1e12
        text += ["", f"{name}: {used:.0f} TFLOP/s, {used / top[kind]:.0%} of the {kind} peak. Milliseconds of a step "
                 "of all 50 clients, by kernels:"]  # fmt: skip
        spent = {k: v for k, v in runs[f"profile {name}"][0].items() if k in KINDS}
        text[-1] += (
            " " + "; ".join(f"{kind} {ms:.1f}" for kind, ms in spent.items()) + f"; in all {sum(spent.values()):.1f}."
        )
    (out / f"{date.today()}-gpu.md").write_text("\n".join(text) + "\n")
    print("\n".join(text))


def spread(runs: list[dict[str, Any]]) -> str:
    values = [r["steps_per_second"] for r in runs]
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


if __name__ == "__main__":
    main()
