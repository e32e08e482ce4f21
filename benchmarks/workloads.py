"""The three workloads of the speed comparison, as fedge runs them. One process per measurement:

python benchmarks/workloads.py dump    LOAD FILE.npz   the data, initial weights and sample indices, for the others
python benchmarks/workloads.py fedge   LOAD FILE.npz   train, print one JSON object
python benchmarks/workloads.py own     ALGORITHM       one of fedge's other algorithms, on the MLP or the CNN
python benchmarks/workloads.py memory                  10,000 clients of the MLP in 20 cells
python benchmarks/workloads.py where                   where MNIST is, if it is at hand
python benchmarks/workloads.py gemm                    the best large matrix product on all cores
python benchmarks/workloads.py profile LOAD            a step on one core, and what it consists of

LOAD is mlp, cnn or resnet.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from clock import age

from fedge import Dataset
from fedge.data.sources import where
from fedge.engine import Vectorised
from fedge.experiment.build import Experiment, experiment
from fedge.experiment.config import Config
from fedge.runner.cache import ProgramCache
from fedge.runner.device import prepare

# FedAvg over all clients on MNIST; on the built-in images, which have its shape, where MNIST is not at hand.
# ResNet-18 learns from random images of CIFAR-10's shape; BatchNorm keeps no running statistics, which PyTorch defines
# differently. Clients hold equally much, since not every peer weighs them (so a few of the CNN's clients hold two
# classes of MNIST).
WORKLOADS: dict[str, dict[str, Any]] = {
    "mlp": {"clients": 60, "cells": 4, "model": "mlp", "batch": 50, "local_steps": 40, "rounds": 5, "lr": 0.01,
            "partition": "shards"},
    "cnn": {"clients": 50, "cells": 10, "model": "cnn", "batch": 10, "local_steps": 5, "rounds": 20, "lr": 0.01,
            "partition": "one_class", "class_split": "equal_shards"},
    "resnet": {"clients": 4, "cells": 2, "model": "resnet18", "bn": "batch_stats", "batch": 10, "local_steps": 5,
               "rounds": 3, "lr": 0.01, "partition": "iid", "data": "custom"},
}  # fmt: skip


def build(name: str, algorithm: str = "fedavg", **keys: Any) -> Experiment:
    data = "mnist" if where("mnist") else "fashion-mini"
    config = Config.of({"algorithm": algorithm, "edge_rounds": 1, "data": data} | WORKLOADS[name] | keys)
    return experiment(config, random_images(2000, 400, (32, 32, 3)) if config.data == "custom" else None)


def random_images(train: int, test: int, shape: tuple[int, ...]) -> Dataset:
    rng = np.random.default_rng(0)
    images = lambda n: (rng.integers(0, 256, (n, *shape), np.uint8), rng.integers(0, 10, n))  # noqa: E731
    return Dataset.of(*images(train), *images(test))


def dump(name: str, path: Path) -> None:
    made = build(name)
    job, steps = made.job, made.config.local_steps * made.config.rounds
    data = jax.tree.map(jnp.asarray, job.data)
    draw = jax.jit(jax.vmap(lambda i: job.task.indices(job.key, data.of(i), i, jnp.int32(0), steps)))
    x, _ = job.task.inputs(data, jnp.arange(len(data.y)))
    weights = {f"w:{path}": np.asarray(w) for path, w in made.start.items()}
    indices = np.asarray(draw(jnp.arange(made.config.clients)))  # clients × steps × batch
    np.savez(path, x=np.asarray(x), y=np.asarray(job.data.y), indices=indices,
             weight=job.algorithm.topology.weight, **weights)  # fmt: skip


def train(name: str, path: Path) -> dict[str, float]:
    """Steady speed over the later rounds; the final weights go beside the file, for comparison."""
    made = build(name)
    measured, state = steady(made)
    np.savez(path.with_suffix(".fedge.npz"), **{p: np.asarray(w) for p, w in state.items()})
    return measured | ({"tested_per_second": testing(made, state)} if name == "resnet" else {})


def testing(made: Experiment, weights: Any) -> float:
    """Images tested per second, the better of two."""
    test, seconds = ProgramCache().test(made), []
    test(weights)
    for _ in range(2):
        began = time.perf_counter()
        test(weights)
        seconds.append(time.perf_counter() - began)
    return len(made.dataset.x_test) / min(seconds)


def steady(made: Experiment) -> tuple[dict[str, float], Any]:
    """Speed of all rounds after the first."""
    engine, rounds = Vectorised(made.job), made.config.rounds
    state, _ = engine.rounds(made.start, 0, 1)
    first = age()
    began = time.perf_counter()
    state, loss = engine.rounds(state, 1, rounds - 1)
    speed = made.job.steps_per_round * (rounds - 1) / (time.perf_counter() - began)
    return {
        "steps_per_second": speed,
        "compile_seconds": engine.compile_seconds,
        "first_round_seconds": first,
        "train_loss": loss,
    }, state


OWN = {
    "hierfavg": ("cnn", {}),
    "hfedavg": ("mlp", {}),
    "hist": ("mlp", {}),
    "sdfeel": ("cnn", {}),
    "hiersfl": ("cnn", {"cut": "pool2"}),
}


def own(algorithm: str) -> dict[str, Any]:
    load, keys = OWN[algorithm]
    made = build(load, algorithm, **keys)
    return steady(made)[0] | {"what": f"{load}, {made.config.cells} cells"}


def memory() -> dict[str, float]:
    """Peak resident memory of one global round over 10,000 clients with 6 images each."""
    data = random_images(60_000, 1_000, (28, 28, 1))
    config = Config.of({"algorithm": "hierfavg", "clients": 10_000, "cells": 20, "data": "custom", "batch": 6,
                        "partition": "iid", "local_steps": 2, "edge_rounds": 2})  # fmt: skip
    made = experiment(config, data)
    before = _peak()
    engine = Vectorised(made.job)
    began = time.perf_counter()
    engine.round(made.start, 0)
    seconds = time.perf_counter() - began - engine.compile_seconds
    return {"peak_gb": _peak(), "before_training_gb": before, "steps_per_second": made.job.steps_per_round / seconds}


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def gemm() -> dict[str, float]:
    """GFLOP/s of a 2048³ float32 product, the best of ten."""
    a = jnp.ones((2048, 2048), jnp.float32)
    product = jax.jit(lambda a: a @ a)
    product(a).block_until_ready()
    best = np.inf
    for _ in range(10):
        began = time.perf_counter()
        product(a).block_until_ready()
        best = min(best, time.perf_counter() - began)
    return {"gflops": 2 * 2048**3 / best / 1e9}


def profile(name: str, most: int = 12) -> dict[str, float]:
    """Microseconds of a client's step on one core: what XLA runs in it, the longest first, and what its multiplications
    would take at the speed of a large product."""
    from speed import FLOP

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    prepare(1)
    made = build(name, devices=1)
    engine = Vectorised(made.job)
    state, _ = engine.rounds(made.start, 0, 1)
    began = time.perf_counter()
    engine.rounds(state, 1, 1)
    whole = 1e6 * (time.perf_counter() - began) / made.job.steps_per_round
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            engine.rounds(state, 1, 1)
        (file,) = Path(folder).rglob("*.xplane.pb")
        planes = jax.profiler.ProfileData.from_file(str(file)).planes
        events = [event for plane in planes for line in plane.lines for event in line.events]
    shape = dict(re.findall(r"%([\w.-]+) = (\w+\[[\d,]*\])", "".join(p.as_text() for p in engine.programs)))
    spent: dict[str, float] = {}
    for event in events:
        if event.name in shape and not event.name.startswith(("while", "call")):
            spent[event.name] = spent.get(event.name, 0) + event.duration_ns / 1e3 / made.job.steps_per_round
    longest = sorted(spent.items(), key=lambda item: -item[1])
    found = {"step": whole} | {f"{key} -> {shape[key]}": value for key, value in longest[:most]}
    at_peak = FLOP[name] / gemm()["gflops"] / 1e3
    return found | {"all others": sum(value for _, value in longest[most:]), "multiplications at the peak": at_peak}


def main() -> None:
    what, *rest = sys.argv[1:]
    if what == "profile":
        for part, microseconds in profile(*rest).items():
            print(f"{microseconds:8.1f}  {part}")
        return
    if what == "where":
        print(json.dumps({"mnist": where("mnist")}))
        return
    if what == "gemm":  # one device with all threads
        print(json.dumps(gemm()))
        return
    prepare()
    if what == "dump":
        dump(rest[0], Path(rest[1]))
    elif what == "own":
        print(json.dumps(own(rest[0])))
    else:
        print(json.dumps(memory() if what == "memory" else train(rest[0], Path(rest[1]))))


if __name__ == "__main__":
    main()
