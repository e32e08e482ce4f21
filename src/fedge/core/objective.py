"""An objective says what a model is trained for: a loss, and the metrics by which it is tested.

    classification   ℓ = −log softmax(z)_y                  z has a number for each class
    regression       ℓ = mean_j (z_j − y_j)²                z has a number for each target
                     R² = 1 − Σ(z − y)² / Σ(y − ȳ)²         over the samples tested, the mean over targets
    tokens           ℓ = mean_t −log softmax(z_t)_{y_t}     over the positions t with y_t ≥ 0
                     perplexity = exp(Σ −log softmax / n)   over all n counted positions of the samples tested

A client's loss on a minibatch is the plain mean of ℓ over its samples, whatever the objective.

Shape legend: B samples, K numbers of a sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from numpy.typing import ArrayLike, NDArray

from fedge.errors import ConfigError

PerSample = Callable[[Array, Array], Array]
"""(outputs of the model, targets) → one number for each sample [B]; for a metric with a `total` also several [B, K]."""
Shape = tuple[int, ...]

TASKS = ("classification", "regression", "tokens")
ON_REQUEST = ("cells", "clients", "f1")  # what else a run may be tested by
OTHERS = frozenset({  # columns of a record that no metric may have the name of
    "round", "iteration", "loss", "train_loss", "global_loss", "objective", "simulated_seconds", "bytes", "consensus",
    "macro_f1",
})  # fmt: skip
OTHER_PREFIXES = ("edge_", "cell_", "client_", "worst_tenth_")


@dataclass(frozen=True, eq=False)
class Metric:
    """A metric is a mean over samples of `each`, or what `total` makes of such means (one, or K of them)."""

    each: PerSample
    total: Callable[[NDArray[np.float64]], float] | None = None
    higher_is_better: bool = True


@dataclass(frozen=True, eq=False)
class Objective:
    """This is a loss with its metrics. A metric that is a mean over samples may be given as the plain function."""

    loss: PerSample
    metrics: Mapping[str, Metric | PerSample] = field(default_factory=dict)
    task: str = "classification"  # what its targets are: those of one of TASKS
    outputs: int | None = None  # of a model of fedge's own; None: only one of the user's will do
    main: str = ""  # the metric that tables and curves show: the first one unless given, or the loss if there is none
    of_groups: str = ""  # the metric that is found for each cell and client: the main one unless given
    predict: Callable[[Array], Array] | None = None  # outputs → classes, for macro-F1
    complaint: Callable[[Shape, Shape], str | None] = lambda outputs, targets: None  # what is wrong with these shapes
    name: str = "custom"

    def __post_init__(self) -> None:
        if not callable(self.loss) or not isinstance(self.metrics, Mapping):
            raise ConfigError(f"objective {self.name}: give the loss, a function of (outputs, targets), and a table of "
                              "such functions as metrics")  # fmt: skip
        if self.task not in TASKS:
            raise ConfigError(f"objective {self.name}: task={self.task!r} is no kind of targets; give one of: "
                              f"{', '.join(TASKS)}")  # fmt: skip
        if taken := [name for name in self.metrics if name in OTHERS or name.startswith(OTHER_PREFIXES)]:
            raise ConfigError(f"objective {self.name}: '{taken[0]}' is another column of the record; "
                              "give the metric another name")  # fmt: skip
        main = self.main or next(iter(self.metrics), "loss")
        for name in (main, self.of_groups or main):
            if name not in (*self.metrics, "loss"):
                raise ConfigError(f"objective {self.name} has no metric '{name}'; it has: "
                                  f"{', '.join((*self.metrics, 'loss'))}")  # fmt: skip
        object.__setattr__(self, "main", main)
        object.__setattr__(self, "of_groups", self.of_groups or main)

    @property
    def names(self) -> list[str]:
        """Name the metrics and the loss, the main one first."""
        return sorted((*self.metrics, "loss"), key=lambda name: name != self.main)

    def metric(self, name: str) -> Metric:
        """Return a metric by its name; the loss is one too."""
        if name == "loss":
            return Metric(self.loss, higher_is_better=False)
        found = self.metrics[name]
        return found if isinstance(found, Metric) else Metric(found)

    def value(self, name: str, means: ArrayLike) -> NDArray[np.float64]:
        """Return a metric of several groups of samples from their means: groups, or groups × K."""
        total, means = self.metric(name).total, np.asarray(means, np.float64)
        with np.errstate(all="ignore"):
            return means if total is None else np.array([total(mean) for mean in means], np.float64)


# Classification


def cross_entropy(logits: Array, labels: Array) -> Array:
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def accuracy(logits: Array, labels: Array) -> Array:
    return logits.argmax(-1) == labels


def classification(classes: int) -> Objective:
    def complaint(outputs: Shape, targets: Shape) -> str | None:
        return f"there are {classes} classes" if len(outputs) != 1 or outputs[0] < classes else None

    return Objective(
        cross_entropy, {"accuracy": accuracy}, outputs=classes, predict=_best, complaint=complaint,
        name="classification",
    )  # fmt: skip


# Regression


def squared_error(outputs: Array, targets: Array) -> Array:
    return _by_target((outputs.reshape(targets.shape) - targets) ** 2).mean(1)


def absolute_error(outputs: Array, targets: Array) -> Array:
    return _by_target(jnp.abs(outputs.reshape(targets.shape) - targets)).mean(1)


def regression(centre: ArrayLike) -> Objective:
    """Make the objective for targets near `centre`, which has a number for each: that of one sample.

    Deviations are taken from there: the variance of numbers such as 1000.1 and 1000.2 would be lost in a float32.
    """
    near = np.asarray(centre, np.float64)
    count = max(1, near.size)

    def parts(outputs: Array, targets: Array) -> Array:
        error, apart = outputs.reshape(targets.shape) - targets, targets - near.astype(targets.dtype)
        return jnp.concatenate([_by_target(x) for x in (error**2, apart, apart**2)], 1)

    def r2(means: NDArray[np.float64]) -> float:
        error, apart, square = means.reshape(3, count)
        return float(np.mean(1 - error / (square - apart**2)))

    def complaint(outputs: Shape, targets: Shape) -> str | None:
        return f"there are {count} numbers to predict" if math.prod(outputs) != count else None

    metrics = {"r2": Metric(parts, r2), "mae": Metric(absolute_error, higher_is_better=False)}
    return Objective(
        squared_error, metrics, "regression", count, of_groups="mae", complaint=complaint, name="regression"
    )


def _by_target(values: Array) -> Array:
    return values.reshape(len(values), -1)


# Tokens


def _counted(logits: Array, labels: Array) -> tuple[Array, Array]:
    """Return each sample's summed loss over its counted positions, and how many these are."""
    counts, positions = labels >= 0, tuple(range(1, labels.ndim))
    losses = jnp.where(counts, cross_entropy(logits, jnp.maximum(labels, 0)), 0)
    return losses.sum(positions), counts.sum(positions)


def token_loss(logits: Array, labels: Array) -> Array:
    losses, count = _counted(logits, labels)
    return losses / jnp.maximum(count, 1)


def tokens(classes: int) -> Objective:
    def surprise(logits: Array, labels: Array) -> Array:
        losses, count = _counted(logits, labels)
        return jnp.stack([losses, count.astype(losses.dtype)], 1)

    def right(logits: Array, labels: Array) -> Array:
        correct, positions = accuracy(logits, labels), tuple(range(1, labels.ndim))
        return jnp.stack([correct.sum(positions), (labels >= 0).sum(positions)], 1).astype(logits.dtype)

    def complaint(outputs: Shape, targets: Shape) -> str | None:
        fits = outputs[:-1] == targets and len(outputs) > 0 and outputs[-1] >= classes
        return None if fits else f"labels {targets} of {classes} tokens need {(*targets, classes)}"

    metrics = {
        "perplexity": Metric(surprise, lambda means: float(np.exp(means[0] / means[1])), higher_is_better=False),
        "accuracy": Metric(right, lambda means: float(means[0] / means[1])),
    }
    return Objective(
        token_loss, metrics, "tokens", of_groups="accuracy", predict=_best, complaint=complaint, name="tokens"
    )


def _best(logits: Array) -> Array:
    return logits.argmax(-1)


def macro_f1(predicted: NDArray[np.integer], labels: NDArray[np.integer]) -> float:
    """Return the mean of 2·TP / (2·TP + FP + FN) over the classes that occur, be it as labels or as predictions;
    labels below 0 are not counted."""
    counts = labels >= 0
    predicted, labels = predicted[counts], labels[counts]
    size = int(max(predicted.max(initial=0), labels.max(initial=0))) + 1
    hit = np.bincount(labels[predicted == labels], minlength=size)
    occurs = np.bincount(predicted, minlength=size) + np.bincount(labels, minlength=size)
    return float(np.mean(2 * hit[occurs > 0] / occurs[occurs > 0]))
