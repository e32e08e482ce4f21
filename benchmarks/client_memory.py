"""Measure what a process needs that runs the client's role alone, beside what fedge reckons for it.

    python benchmarks/client_memory.py > benchmarks/results/DATE-client-memory.md

Each row is a process of its own that trains one client with 100 samples for five steps (`core.client.local_round`) in a
program that another process has compiled. The baseline is the same process after a first such round, when it holds
nothing of the client's any more; measured is by how much the memory in use (VmHWM of /proc/self/status) rises at most
over that in another round. Linux only.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROWS = [("mlp", 10), ("mlp", 50), ("cnn", 10), ("cnn", 50), ("resnet18", 10), ("resnet18", 20)]
SAMPLES, STEPS, TURNS = 100, 5, 3
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}  # what is freed is given back


def in_use(entry: str) -> int:
    """Return an entry of this process's status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{entry}:"))


def measure(model: str, batch: int) -> dict[str, float]:
    """Reckon and measure one client; numbers are bytes."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from fedge.core.client import NOTHING, Link, Samples, local_round
    from fedge.data import Dataset
    from fedge.experiment.build import experiment
    from fedge.experiment.config import Config
    from fedge.experiment.holding import holdings

    rng, shape = np.random.default_rng(0), (32, 32, 3) if model == "resnet18" else (28, 28, 1)
    draw = lambda n: (rng.integers(0, 256, (n, *shape), np.uint8), rng.integers(0, 10, n))  # noqa: E731
    data = Dataset.of(*draw(SAMPLES), *draw(10), classes=10, scale=((0.5,) * shape[-1], (0.5,) * shape[-1]))
    keys = {
        "algorithm": "hierfavg",
        "clients": 1,
        "cells": 1,
        "partition": "iid",
        "data": "custom",
        "local_steps": STEPS,
    }
    made = experiment(Config.of(keys | {"model": model, "batch": batch}), data)
    job = made.job
    (held,) = holdings(job.algorithm, job.task, made.model, made.clock.ledger, data, made.partition)

    def role(weights: Any, own: Samples, client: Any, first: Any, lr: Any) -> Any:
        return local_round(
            job.task, job.algorithm.way, weights, Link(), own, NOTHING, job.key, client, first, STEPS, lr
        )

    weights, own = jax.eval_shape(lambda: made.start), Samples.alone(data.x_train, data.y_train)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), jax.dtypes.canonicalize_dtype(x.dtype)), own)
    number, real = jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((), jnp.float32)
    program = jax.jit(role).lower(weights, shapes, number, number, real).compile()
    sizes = program.memory_analysis()

    def once() -> Any:
        mine = {p: jnp.asarray(0.01 * rng.standard_normal(w.shape, np.float32)) for p, w in weights.items()}
        return jax.block_until_ready(program(mine, jax.tree.map(jnp.asarray, own), jnp.int32(0), jnp.int32(0),
                                             jnp.float32(0.01)))  # fmt: skip

    rises = []
    for _ in range(1 + TURNS):
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins again at what is in use
        before = in_use("VmRSS")
        result = once()
        rises.append(in_use("VmHWM") - before)
        del result
    planned = sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes
    return {"reckoned": held.client.total, "planned": planned, "first": rises[0], "least": min(rises[1:]),
            "most": max(rises[1:])}  # fmt: skip


def main() -> None:
    print("# What a client needs in memory, reckoned and measured\n")
    print(f"{os.cpu_count()} CPU cores, Python {sys.version.split()[0]}. MB. Reckoned: `fedge cost run`, from shapes.")
    print(
        "Planned: the arrays of XLA's own plan (`memory_analysis`). Measured: by how much a process's memory rises at"
    )
    print(f"most in a round of the client's role, over {TURNS} rounds.\n")
    print("| model | batch | reckoned | planned by XLA | measured | reckoned by measured |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as cache:
        for model, batch in ROWS:
            once = {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
            for _ in range(2):  # the first one compiles
                said = subprocess.run([sys.executable, __file__, model, str(batch)], env=os.environ | once | ALLOCATOR,
                                      check=True, capture_output=True, text=True).stdout  # fmt: skip
            found = {key: value / 1e6 for key, value in json.loads(said.splitlines()[-1]).items()}
            middle = (found["least"] + found["most"]) / 2
            measured, ratio = f"{found['least']:.3g} to {found['most']:.3g}", found["reckoned"] / middle
            sizes = f"{found['reckoned']:.3g} | {found['planned']:.3g}"
            print(f"| {model} | {batch} | {sizes} | {measured} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
    else:
        main()
