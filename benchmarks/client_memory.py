"""Measure what a process needs that runs one role alone, beside what fedge reckons for it.

    python benchmarks/client_memory.py > benchmarks/results/DATE-client-memory.md

Each row is a process of its own that plays one role a few times over, with what others would send made up:

    client         trains on 100 samples for five steps (`core.client.local_round`)
    split client   the same with the lower part of a model, by messages (`fleet.split.Cutting`)
    split edge     answers four clients for five steps, and steps the upper part (`fleet.split_cell.Upper`)
    edge           folds the models of four clients, one after the other (`core.edge`)

The baseline is the same process after a first such turn, when it holds nothing of the role's any more; measured is by
how much the memory in use (VmHWM of /proc/self/status) rises at most over that in another turn. Linux only.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROWS: dict[str, list[dict[str, Any]]] = {  # those of the first table are what `cost.memory.BESIDES` was fitted on
    "Clients of the three models": [
        {"model": model, "batch": batch}
        for model, batch in [("mlp", 10), ("mlp", 50), ("cnn", 10), ("cnn", 50), ("resnet18", 10), ("resnet18", 20)]
    ],
    "Clients that nothing was fitted on": [
        {"model": "resnet8", "batch": 10}, {"model": "resnet8", "batch": 40},
        {"model": "benchmarks.client_memory:wide", "batch": 20},
        {"model": "mlp", "batch": 10, "optimizer": "adam"}, {"model": "mlp", "batch": 10, "codec": "topk:0.1"},
        {"model": "mlp", "batch": 10, "algorithm": "scaffold"}, {"model": "cnn", "batch": 200},
    ],
    "Clients of a split model": [
        {"role": "split client", "model": "mlp", "batch": 50, "cut": "hidden"},
        {"role": "split client", "model": "cnn", "batch": 10, "cut": "pool2"},
        {"role": "split client", "model": "cnn", "batch": 50, "cut": "pool1"},
        {"role": "split client", "model": "resnet18", "batch": 10, "cut": "layer1"},
    ],
    "Edges": [
        {"role": "split edge", "model": "mlp", "batch": 50, "cut": "hidden"},
        {"role": "split edge", "model": "cnn", "batch": 50, "cut": "pool1"},
        {"role": "split edge", "model": "resnet18", "batch": 10, "cut": "layer1"},
        {"role": "edge", "model": "mlp"}, {"role": "edge", "model": "resnet18"},
        {"role": "edge", "model": "resnet18", "edge_rule": "median"},
    ],
}  # fmt: skip
SAMPLES, STEPS, CLIENTS, TURNS = 100, 5, 4, 3
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}  # what is freed is given back


def wide(shape: Any, outputs: int, rngs: Any) -> Any:
    """Build a model that no reckoning has seen: three layers, two of 700 units."""
    from flax import nnx

    class Wide(nnx.Module):
        def __init__(self) -> None:
            self.a, self.b = nnx.Linear(shape[0] * shape[1], 700, rngs=rngs), nnx.Linear(700, 700, rngs=rngs)
            self.c = nnx.Linear(700, outputs, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.c(nnx.gelu(self.b(nnx.gelu(self.a(x.reshape(len(x), -1))))))

    return Wide()


def in_use(entry: str) -> int:
    """Return an entry of this process's status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{entry}:"))


def measure(row: dict[str, Any]) -> dict[str, float]:
    """Reckon and measure one role; numbers are bytes."""
    import numpy as np

    from fedge.data import Dataset
    from fedge.experiment.build import experiment
    from fedge.experiment.config import Config
    from fedge.experiment.holding import holdings

    rng, role = np.random.default_rng(0), row.get("role", "client")
    colour = row["model"].startswith("resnet")
    shape, clients = ((32, 32, 3) if colour else (28, 28, 1)), (1 if "client" in role else CLIENTS)
    draw = lambda n: (rng.integers(0, 256, (n, *shape), np.uint8), rng.integers(0, 10, n))  # noqa: E731
    data = Dataset.of(*draw(SAMPLES * clients), *draw(10), classes=10, scale=((0.5,) * shape[-1],) * 2)
    keys = {"algorithm": "hiersfl" if "split" in role else "hierfavg", "clients": clients, "cells": 1,
            "partition": "iid", "data": "custom", "local_steps": STEPS}  # fmt: skip
    made = experiment(Config.of(keys | {key: value for key, value in row.items() if key != "role"}), data)
    job = made.job
    (held,) = holdings(job.algorithm, job.task, made.model, made.clock.ledger, data, made.partition)
    play = {"client": client, "split client": split_client, "split edge": split_edge, "edge": edge}[role]
    once, planned = play(made, data, rng)
    rises = []
    for _ in range(1 + TURNS):
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins again at what is in use
        before = in_use("VmRSS")
        result = once()
        rises.append(in_use("VmHWM") - before)
        del result
    reckoned = held.client.total if "client" in role else held.edge.total
    return {"reckoned": reckoned, "planned": planned, "least": min(rises[1:]), "most": max(rises[1:])}


Role = tuple[Callable[[], Any], int]
"""(what is done in a turn, bytes of XLA's own plan for it; 0 where it is several programs)"""


def like(shapes: Any, rng: Any) -> dict[str, Any]:
    """Make up a model on the host."""
    import numpy as np

    made = {path: rng.standard_normal(w.shape, np.float32) for path, w in shapes.items()}
    for w in made.values():
        w *= np.float32(0.01)  # in its place: a model that arrives is there once
    return made


def client(made: Any, data: Any, rng: Any) -> Role:
    import jax
    import jax.numpy as jnp
    import numpy as np

    from fedge.core.client import NOTHING, Link, Samples, local_round

    task, way, key = made.job.task, made.job.algorithm.way, made.job.key
    shapes, own = made.clock.ledger.stacks[0].shapes, Samples.alone(data.x_train, data.y_train)
    trained = {path: w for path, w in shapes.items() if path in task.trainable}
    row = trained if way.correction is not None else {}
    lost = trained if way.feeds_back else {}

    def role(weights: Any, row: Any, control: Any, lost: Any, own: Samples, number: Any, first: Any, lr: Any) -> Any:
        memory = NOTHING._replace(shift=row, lost=lost)
        link = Link(control=control) if control else Link()
        return local_round(task, way, weights, link, own, memory, key, number, first, STEPS, lr)

    def shape(tree: Any) -> Any:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), jax.dtypes.canonicalize_dtype(x.dtype)), tree)

    number, real = jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((), jnp.float32)
    given = (shapes, row, row, lost, shape(own))
    program = jax.jit(role).lower(*map(shape, given), number, number, real).compile()
    sizes = program.memory_analysis()

    def once() -> Any:
        mine = [jax.tree.map(jnp.asarray, like(each, rng)) for each in given[:4]]
        last = jnp.int32(0), jnp.int32(0), jnp.float32(0.01)
        return jax.block_until_ready(program(*mine, jax.tree.map(jnp.asarray, own), *last))

    return once, sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes


def split_client(made: Any, data: Any, rng: Any) -> Role:
    import jax
    import jax.numpy as jnp
    import numpy as np

    from fedge.core.client import Link, Samples
    from fedge.fleet.split import AT_CUT, Cutting
    from fedge.fleet.work import Work

    work = Work(made)
    cut, shapes = Cutting(work, 0), {p: w for p, w in work.stack_of(0).weights.items() if work.at_client(p)}
    rows = jnp.asarray(rng.permutation(SAMPLES)[: work.task.batch].astype(np.int32))
    slot = cut.gradient_form[AT_CUT]

    def once() -> Any:
        half = jax.tree.map(jnp.asarray, like(shapes, rng))
        own = jax.tree.map(jnp.asarray, Samples.alone(data.x_train, data.y_train))
        start, memory = half, work.task.fresh(work.lr, half)
        for step in map(np.int32, range(STEPS)):
            sent = [np.asarray(x) for x in cut.forward(half, own, rows, np.int32(0), step)]
            down = rng.standard_normal(slot.shape, np.float32).astype(slot.dtype, copy=False)
            half, memory = cut.backward(half, memory, start, Link(), own, rows, down, np.int32(0), step)
            del sent, down
        return jax.block_until_ready(half)

    return once, 0


def split_edge(made: Any, data: Any, rng: Any) -> Role:
    import jax
    import jax.numpy as jnp
    import numpy as np

    from fedge.fleet.split import AT_CUT, Cutting
    from fedge.fleet.split_cell import Upper
    from fedge.fleet.work import Work
    from fedge.net.names import client as name
    from fedge.net.names import edge as at
    from fedge.net.tally import LABELS
    from fedge.net.wire import Message

    work = Work(made)
    cut, shapes = Cutting(work, 0), work.stack_of(0).weights
    crossing, labels = cut.activations_form[AT_CUT], cut.activations_form[LABELS]

    def message(number: int) -> Message:
        tensors = {AT_CUT: rng.random(crossing.shape, np.float32).astype(crossing.dtype, copy=False),
                   LABELS: rng.integers(0, 10, labels.shape).astype(labels.dtype)}  # fmt: skip
        return Message("activations", name(number), at(0), 0, 0, tensors=tensors)

    def once() -> Any:
        start = like(shapes, rng)
        upper = Upper(cut, {p: jnp.asarray(w) for p, w in start.items() if not work.at_client(p)})
        for step in range(STEPS):
            came = [message(i) for i in range(CLIENTS)]
            for i, each in enumerate(came):
                np.asarray(upper.answer(i, each, step))
            upper.step(list(range(CLIENTS)), [1 / CLIENTS] * CLIENTS)
        half = {p: w for p, w in start.items() if work.at_client(p)}
        return jax.block_until_ready(upper.weights), folded(half, None, rng)

    return once, 0


def folded(start: dict[str, Any], rule: Any, rng: Any) -> Any:
    """Fold clients' models, each of which arrives when the one before is there no more."""
    from fedge.core.edge import aggregate_of

    edge = aggregate_of(rule)
    total = edge.empty(start)
    for _ in range(CLIENTS):
        total = edge.add(total, 1 / CLIENTS, like(start, rng))
    return edge.close(total, start)


def edge(made: Any, data: Any, rng: Any) -> Role:
    import jax

    shapes, rule = made.clock.ledger.stacks[0].shapes, made.job.algorithm.way.edge_rule
    return (lambda: jax.block_until_ready(folded(like(shapes, rng), rule, rng))), 0


def described(row: dict[str, Any]) -> str:
    named = {key: value for key, value in row.items() if key not in ("role", "model", "batch")}
    words = [row.get("role", "client"), row["model"].rpartition(":")[2], *(f"{k}={v}" for k, v in named.items())]
    return " ".join(words)


def main() -> None:
    print("# What one role needs in memory, reckoned and measured\n")
    print(f"{os.cpu_count()} CPU cores, Python {sys.version.split()[0]}. MB. Reckoned: `fedge cost run`, from shapes.")
    print("Planned: the arrays of XLA's own plan (`memory_analysis`), where the role is one program. Measured: by how")
    print(f"much a process's memory rises at most in a turn of the role, over {TURNS} turns.")
    with tempfile.TemporaryDirectory() as cache:
        once = {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        for title, rows in ROWS.items():
            print(f"\n## {title}\n\n| role | batch | reckoned | planned by XLA | measured | reckoned by measured |")
            print("|---|---|---|---|---|---|")
            for row in rows:
                command = [sys.executable, __file__, json.dumps(row)]
                for _ in range(2):  # the first one compiles
                    said = subprocess.run(command, env=os.environ | once | ALLOCATOR, check=True, capture_output=True,
                                          text=True).stdout  # fmt: skip
                found = {key: value / 1e6 for key, value in json.loads(said.splitlines()[-1]).items()}
                middle = (found["least"] + found["most"]) / 2
                measured, ratio = f"{found['least']:.3g} to {found['most']:.3g}", found["reckoned"] / middle
                planned = f"{found['planned']:.3g}" if found["planned"] else "–"
                cells = [described(row), str(row.get("batch", "–")), f"{found['reckoned']:.3g}", planned, measured]
                print(f"| {' | '.join(cells)} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(json.loads(sys.argv[1]))))
    else:
        main()
