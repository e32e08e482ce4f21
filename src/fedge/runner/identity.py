"""One digest says what a run is: whatever it is resumed from must carry the same.

identity = SHA-256 of the configuration (how long to run and on which devices left out), the data, files and functions
           of one's own, what was passed in from Python, and the source files of fedge
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedge.algorithms import ALGORITHMS, algorithm
from fedge.core.keys import root
from fedge.data import DATASETS, Dataset
from fedge.experiment.build import Experiment
from fedge.experiment.checks import CUSTOM
from fedge.experiment.optimisers import Optimiser
from fedge.experiment.tasks import shape_of_samples
from fedge.models import Model
from fedge.plugins import is_name, source_digest
from fedge.runner.sources import sources

LENGTH = ("rounds", "budget_seconds", "budget_bytes", "target", "target_metric", "target_mean")
"""These keys may be given anew when a run is resumed: it goes on for longer."""
LAYOUT = ("devices", "chunk")  # where it runs; another layout costs bit identity and nothing else
ARRAYS = ("x_train", "y_train", "x_test", "y_test")


def digest_of(*parts: bytes | str) -> str:
    total = hashlib.sha256()
    for part in parts:
        own = part.encode() if isinstance(part, str) else part
        total.update(len(own).to_bytes(8, "little") + own)
    return total.hexdigest()


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def array_digest(array: Any) -> str:
    """Return the SHA-256 of an array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).hexdigest()


def data_digests(dataset: Dataset) -> dict[str, str]:
    """Make a digest for each array: of its values, its shape and its kind."""
    found = {}
    for name in ARRAYS:
        array = getattr(dataset, name)
        found[name] = digest_of(array_digest(array), str(array.shape), str(array.dtype))
    if dataset.client is not None:
        found["client"] = array_digest(dataset.client)
    return found | {"scale": digest_of(str(dataset.scale)), "classes": str(dataset.classes)}


def is_known(dataset: Dataset) -> bool:
    """Say whether a data set holds, to the bit, what the known set of its name holds."""
    source = DATASETS.get(dataset.name)
    if source is None or dataset.scale != source.scale or dataset.classes != 10:
        return False
    shapes = {"x_train": (source.samples[0], *source.shape), "x_test": (source.samples[1], *source.shape)}
    for name in ARRAYS:
        array = getattr(dataset, name)
        if name in shapes and (array.shape != shapes[name] or array.dtype != np.uint8):
            return False
        if name not in shapes and (array.min(initial=0) < 0 or array.max(initial=0) > 255):
            return False
        if array_digest(array.astype(np.uint8, copy=False)) != source.digest[name]:
            return False
    return True


def objects(made: Experiment, optimiser: Optimiser | None) -> dict[str, Any]:
    """Make digests of what is the user's own: files, functions, and what was passed in from Python.

    A program's is that of the operations it is traced to.
    """
    found: dict[str, Any] = {**sources(made.config.model_dump())}
    if made.config.algorithm not in ALGORITHMS:  # also one of an installed package, whose name has one word
        found["algorithm"] = source_digest(algorithm(made.config.algorithm).factory)
    if made.config.data == CUSTOM:
        found["data"] = data_digests(made.dataset)
    elif is_name(made.config.data):
        found["data"] |= data_digests(made.dataset)
    if made.config.partition == CUSTOM:
        found["partition"] = digest_of(array_digest(made.partition.order), array_digest(made.partition.size))
    if made.config.assign == CUSTOM:
        found["assign"] = array_digest(made.partition.cell)
    if made.config.init == CUSTOM and made.init is not None:
        found["init"] = digest_of(
            *(part for path in sorted(made.init) for part in (path, array_digest(made.init[path])))
        )
    if made.config.model == CUSTOM:
        found["model"] = model_digest(made)
    elif is_name(made.config.model):
        found["model"] |= {"program": model_digest(made)}
    if made.config.optimizer == CUSTOM and optimiser is not None:
        found["optimizer"] = optimiser_digest(made.model, optimiser)
    if made.config.task == CUSTOM:
        found["task"] = objective_digest(made)
    elif is_name(made.config.task):
        found["task"] |= {"program": objective_digest(made)}
    return found


def objective_digest(made: Experiment) -> str:
    """Make a digest of the loss and of what the metrics are means of."""
    objective, y = made.job.task.objective, made.dataset.y_train
    forward, weights, sample = traced_model(made)
    outputs = jax.eval_shape(forward, weights, sample)[0]
    targets = shape_of_samples(y, 2)

    def values(outputs: Any, targets: Any) -> Any:
        return [objective.metric(name).each(outputs, targets) for name in objective.names]

    return program_digest(values, outputs, targets, note=str(objective.names))


def model_digest(made: Experiment) -> str:
    model, (forward, weights, sample) = made.model, traced_model(made)
    return program_digest(forward, weights, sample, note=str((sorted(model.axes.items()), model.stages)))


def traced_model(made: Experiment) -> tuple[Callable[[Any, Any], Any], Any, Any]:
    """Return a model's forward pass, and the shapes of its weights and of two inputs."""
    model, dtype = made.model, made.job.task.dtype
    weights = jax.eval_shape(lambda: model.initialise(root(0)))
    kind = dtype if np.issubdtype(made.dataset.x_train.dtype, np.floating) else made.dataset.x_train.dtype
    sample = jax.ShapeDtypeStruct(
        (2, *made.dataset.shape), jax.dtypes.canonicalize_dtype(dtype if kind == np.uint8 else kind)
    )

    def forward(weights: Any, x: Any) -> Any:
        return model(weights, x, train=True, key=root(0))

    return forward, weights, sample


def optimiser_digest(model: Model, optimiser: Optimiser) -> str:
    weights = {p: jax.ShapeDtypeStruct(model.template[p].shape, jnp.float32) for p in sorted(model.trainable)}

    def step(lr: Any, weights: Any, gradient: Any) -> Any:
        chosen = optimiser(lr)
        return chosen.update(gradient, chosen.init(weights), weights)

    return program_digest(step, jax.ShapeDtypeStruct((), jnp.float32), weights, weights)


def program_digest(function: Any, *shapes: Any, note: str = "") -> str:
    """Make a digest of what a function computes: its traced operations and the constants in them.

    Another version of JAX may write the same function otherwise, so digests are compared within one version only.
    """
    traced = jax.make_jaxpr(function)(*shapes)
    constants = [array_digest(np.asarray(c)) for c in traced.consts if not jnp.issubdtype(c.dtype, jax.dtypes.prng_key)]
    text = re.sub(r"0x[0-9a-f]+", "", str(traced.jaxpr))  # addresses of functions differ from process to process
    return digest_of(text, *constants, note)


@cache
def code_digest() -> str:
    """Make a digest of fedge's own source files: checkouts of one version may differ."""
    top = Path(__file__).parents[1]
    sources = {path.relative_to(top).as_posix(): path for path in top.rglob("*.py")}
    return digest_of(*(part for name in sorted(sources) for part in (name, sources[name].read_bytes())))


def identity(config: Mapping[str, Any], made_with: Mapping[str, Any], code: str) -> str:
    """Compute the digest that a run's files carry; `made_with` is what `objects` returns, `code` what `code_digest`."""
    fixed = {key: value for key, value in config.items() if key not in (*LENGTH, *LAYOUT)}
    known = DATASETS[fixed["data"]].digest if fixed.get("data") in DATASETS else None
    return digest_of(canonical(fixed), canonical(known), canonical(dict(made_with)), code)


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Tell people what changed from one configuration to another: `lr: 0.1 → 0.2, seed: 0 → 1`."""
    keys = [key for key in {**then, **now} if then.get(key) != now.get(key)]
    return ", ".join(f"{key}: {then.get(key)} → {now.get(key)}" for key in sorted(keys))
