"""Pictures tell samples apart by their kind: a class or, where numbers are to be predicted, a tenth of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedge.experiment.build import Experiment

TENTHS = 10


@dataclass(frozen=True, eq=False)
class Kinds:
    of_client: NDArray[np.int64]  # samples: clients × kinds
    name: str
    names: tuple[str, ...] = ()  # of each kind, where it has one

    @property
    def count(self) -> int:
        return int(self.of_client.shape[1])


def kinds_of(made: Experiment) -> Kinds | None:
    """Count each client's samples of each kind; None where samples have no kind, as sequences of tokens."""
    dataset = made.dataset
    if dataset.task == "tokens":
        return None
    if dataset.task == "regression":
        return Kinds(made.partition.label_counts(tenths(dataset.y_train), TENTHS), "tenth of the targets")
    return Kinds(made.partition.label_counts(dataset.y_train, dataset.classes), "class", dataset.class_names)


def tenths(targets: NDArray[Any]) -> NDArray[np.int32]:
    """Return in which tenth of all samples, from the lowest to the highest, each is by its first target."""
    first = targets.reshape(len(targets), -1)[:, 0].astype(np.float64)
    limits = np.quantile(first, np.arange(1, TENTHS) / TENTHS)
    return np.searchsorted(limits, first, side="right").astype(np.int32)
