"""The task of a run: find its objective, and refuse data, partitions and models that do not fit it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import Array
from numpy.typing import NDArray

from fedge.core.client import Task, normalise
from fedge.core.keys import root
from fedge.core.objective import ON_REQUEST, Objective, classification, regression, tokens
from fedge.core.tree import cast
from fedge.data import Dataset, cells, partition
from fedge.errors import ConfigError, brief, suggestion
from fedge.models import Model
from fedge.plugins import call, find, is_name

if TYPE_CHECKING:
    from fedge.experiment.config import Config

TARGETS = {"classification": "classes", "regression": "real numbers", "tokens": "a label for each position"}
METRICS = f"some of {', '.join(ON_REQUEST)}, with commas between"  # what the key `metrics` takes


def read_metrics(given: Any) -> str:
    """Read metrics as words with commas between or as a list; the same set always reads the same."""
    parts = given.split(",") if isinstance(given, str) else given
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ConfigError(f"metrics={brief(given)} is not allowed; allowed: {METRICS}")
    asked = [part.strip().lower() for part in parts if part.strip()]
    for word in asked:
        if word not in ON_REQUEST:
            near = suggestion(word, ON_REQUEST)
            raise ConfigError(f"metrics={brief(word)} is not allowed; allowed: {METRICS}{near}")
    return ",".join(word for word in ON_REQUEST if word in asked)


def find_objective(config: Config, dataset: Dataset, given: Objective | None) -> Objective:
    """Return the objective passed in, the one that the user's function makes for the data set, or fedge's own."""
    objective = given or _make(config.task, dataset)
    if objective.task != dataset.task:
        found, needed = TARGETS[dataset.task], TARGETS[objective.task]
        raise ConfigError(f"the targets of {dataset.name} are {found}, and not {needed}; give task={dataset.task}")
    refuse_labels(config, objective.task)
    if "f1" in config.metrics.split(",") and objective.predict is None:
        raise ConfigError(f"metrics=f1 needs classes to predict, and task={brief(config.task)} has none; leave f1 out")
    return objective


def _make(name: str, dataset: Dataset) -> Objective:
    if is_name(name):
        made = call(f"task={name}", find("task", name, ("dataset",)), dataset)
        if not isinstance(made, Objective):
            raise ConfigError(f"task={name} returned a {type(made).__name__}; let it return a fedge.Objective")
        return made
    if name == "regression":
        return regression(dataset.y_train.mean(0, dtype=float))
    return {"classification": classification, "tokens": tokens}[name](dataset.classes)


def refuse_labels(config: Config, task: str) -> None:
    """Refuse what asks for the class of a sample where it has none."""
    for key, by_label, instead in (("partition", partition.BY_LABEL, "iid"), ("assign", cells.BY_LABEL, "random")):
        if task != "classification" and getattr(config, key) in by_label:
            raise ConfigError(
                f"{key}={getattr(config, key)} goes by each sample's class, and {task} has none; write {key}={instead}"
            )


def outputs_of(objective: Objective, config: Config, classes: int) -> int:
    """Return how many outputs a model needs; where the objective leaves that open, one of the user's own is handed
    the number of classes."""
    if objective.outputs is not None:
        return objective.outputs
    if is_name(config.model):
        return classes
    raise ConfigError(
        f"model={config.model} has no form for task={brief(config.task)}; bring a model of your own, "
        "model=package.module:function"
    )


def check_model(model: Model, task: Task, dataset: Dataset) -> None:
    """Check by one pass over shapes that the model takes these inputs, that its outputs are what the objective needs,
    and that the loss and the metrics have one number for each sample."""
    objective = task.objective

    def outputs(x: Array) -> Array:
        weights = cast(model.initialise(root(0)), task.dtype)
        return model(weights, normalise(x, task.scale, task.dtype), train=True, key=root(0))[0]

    try:
        found = jax.eval_shape(outputs, shape_of_samples(dataset.x_train, 2))
    except (TypeError, ValueError) as problem:
        reason = (str(problem).splitlines() or [""])[0]
        raise ConfigError(f"model {model.name} cannot take inputs of shape {dataset.shape}: {reason[:200]}") from None
    if wrong := objective.complaint(found.shape[1:], dataset.y_train.shape[1:]):
        raise ConfigError(f"model {model.name} gives {found.shape[1:]} for each input, but {wrong}")
    check_shapes(objective, found, shape_of_samples(dataset.y_train, 2))


def shape_of_samples(array: NDArray[Any], *count: int) -> jax.ShapeDtypeStruct:
    """Describe one sample, or a batch of them, as JAX has it, which keeps no 64 bits unless it is told to."""
    return jax.ShapeDtypeStruct((*count, *array.shape[1:]), jax.dtypes.canonicalize_dtype(array.dtype))


def check_shapes(objective: Objective, outputs: jax.ShapeDtypeStruct, targets: jax.ShapeDtypeStruct) -> None:
    """Check that the loss has one floating number for each of these samples, and each metric one or several."""
    samples = targets.shape[0]
    for name in objective.names:
        metric = objective.metric(name)
        where = f"objective {objective.name}: {'the loss' if name == 'loss' else f'metric {name}'}"
        try:
            found = jax.eval_shape(metric.each, outputs, targets)
        except Exception as problem:
            reason = brief((str(problem).splitlines() or [""])[0])
            raise ConfigError(f"{where} cannot take outputs {outputs.shape} and targets {targets.shape} of 2 samples, "
                              f"{type(problem).__name__}: {reason}; mend it") from None  # fmt: skip
        shape = getattr(found, "shape", None)
        several = metric.total is not None and shape is not None and len(shape) == 2 and shape[0] == samples
        if shape != (samples,) and not several:
            raise ConfigError(
                f"{where} gives {'something else' if shape is None else shape} for {samples} samples; it must give one "
                f"number for each sample, ({samples},)" + (", or several where it has a total" if metric.total else "")
            )
        if name == "loss" and not jnp.issubdtype(found.dtype, jnp.floating):
            raise ConfigError(f"{where} gives {found.dtype}; it must give floating numbers, which have a gradient")
