"""Test states: find accuracy and loss of the evaluated model and, where edges keep their own models, of those too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedge.core import tree
from fedge.core.contract import State
from fedge.experiment.build import Experiment
from fedge.runner.cache import ProgramCache
from fedge.runner.rows import Row


class Metrics:
    """This tests one run, or several of one shape that advance together."""

    def __init__(self, runs: Sequence[Experiment], cache: ProgramCache) -> None:
        self._made = runs[0]
        self._view = cache.views(runs[0])
        self._share = np.stack([made.job.algorithm.topology.cell_weight for made in runs])
        self._test = cache.test(runs[0])
        self._train = cache.train(runs) if runs[0].config.train_eval else None

    def __call__(self, states: State, done: int, train_losses: Sequence[float]) -> list[Row]:
        """Return a row for each run; states lie along a leading axis."""
        made = self._made
        models, edges = self._view(states, self._share.astype(made.job.task.dtype))
        models = made.calibrated(models)
        columns: dict[str, Any] = dict(zip(("accuracy", "loss"), self._test.each(models), strict=True))
        columns["train_loss"] = train_losses
        if self._train is not None:
            train, shares = self._train
            _, columns["global_loss"], columns["objective"] = train.each(models, shares)
        if edges is not None:
            flat = {path: w.reshape(-1, *w.shape[2:]) for path, w in edges.items()}
            each = self._test.each(made.calibrated(flat))[0].reshape(self._share.shape)
            columns |= {
                "edge_accuracy": each.mean(1),
                "edge_accuracies": each,
                "consensus": disagreement(edges, self._share),
            }
        when = {"round": done, "iteration": done * made.job.algorithm.schedule.period}
        return [_row(when | {key: v[n] for key, v in columns.items()}) for n in range(len(self._share))]


def _row(values: dict[str, Any]) -> Row:
    """Make plain numbers; None stands for one that is not finite."""
    row: Row = {k: v.tolist() if isinstance(v, (np.ndarray, np.generic)) else v for k, v in values.items()}
    return {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in row.items()}


def disagreement(edges: tree.Weights, share: NDArray[Any]) -> NDArray[Any]:
    """Return Σ_d m̃_d ‖w_d − u‖² of each run: how far its edges are from agreeing."""
    total = np.zeros(len(share))
    for w in edges.values():
        rows = np.asarray(w, np.float64).reshape(*share.shape, -1)
        apart = rows - (share[:, None] @ rows)
        total += (share * (apart**2).sum(2)).sum(1)
    return total
