"""Test states: find metrics and loss of the evaluated model and, where edges keep their own models, of those too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedge.core import tree
from fedge.core.contract import State
from fedge.core.objective import macro_f1
from fedge.experiment.build import Experiment
from fedge.runner.cache import ProgramCache
from fedge.runner.per_group import group_columns, plural
from fedge.runner.rows import Row


class Metrics:
    """This tests one run, or several of one shape that advance together."""

    def __init__(self, runs: Sequence[Experiment], cache: ProgramCache) -> None:
        self._made, self._runs = runs[0], runs
        self._view = cache.views(runs[0])
        self._share = np.stack([made.job.algorithm.topology.cell_weight for made in runs])
        self._asked = [word for word in runs[0].config.metrics.split(",") if word]
        self._by_group = "cells" in self._asked or "clients" in self._asked
        self._test = cache.test(runs[0])
        self._train = cache.train(runs) if runs[0].config.train_eval or self._by_group else None

    def __call__(self, states: State, done: int, train_losses: Sequence[float]) -> list[Row]:
        """Return a row for each run; states lie along a leading axis."""
        made, main = self._made, self._made.job.task.objective.main
        models, edges = self._view(states, self._share.astype(made.job.task.dtype))
        models = made.calibrated(models)
        columns: dict[str, Any] = self._test.each(models) | {"train_loss": train_losses}
        if self._train is not None and made.config.train_eval:
            found = self._train.evaluator.each(models, self._train.shares)
            columns |= {"global_loss": found["loss"], "objective": found["objective"]}
        if edges is not None:
            flat = {path: w.reshape(-1, *w.shape[2:]) for path, w in edges.items()}
            each = self._test.each(made.calibrated(flat))[main].reshape(self._share.shape)
            columns |= {
                f"edge_{main}": each.mean(1),
                f"edge_{plural(main)}": each,
                "consensus": disagreement(edges, self._share),
            }
        when = {"round": done, "iteration": done * made.job.algorithm.schedule.period}
        on_request = self._on_request(models)
        return [_row(when | {key: v[n] for key, v in columns.items()} | on_request[n]) for n in range(len(self._share))]

    def _on_request(self, models: tree.Weights) -> list[dict[str, Any]]:
        """Return the columns of each run that `metrics` asks for."""
        columns: list[dict[str, Any]] = [{} for _ in self._runs]
        objective = self._made.job.task.objective
        if "f1" in self._asked:
            for own, classes in zip(columns, self._test.predicted(models), strict=True):
                own["macro_f1"] = macro_f1(classes, self._made.dataset.y_test)
        if self._train is not None and self._by_group:
            values = self._train.evaluator.of_samples(models, objective.of_groups)
            for own, made, of_run in zip(columns, self._runs, values, strict=True):
                whole = np.zeros((len(made.dataset.x_train), *of_run.shape[1:]))
                whole[self._train.samples] = of_run
                own |= group_columns(objective, self._asked, made.partition, whole)
        return columns


def _row(values: dict[str, Any]) -> Row:
    """Make plain numbers; None stands for one that is not finite."""
    return {k: _plain(v.tolist() if isinstance(v, (np.ndarray, np.generic)) else v) for k, v in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def disagreement(edges: tree.Weights, share: NDArray[Any]) -> NDArray[Any]:
    """Return Σ_d m̃_d ‖w_d − u‖² of each run: how far its edges are from agreeing."""
    total = np.zeros(len(share))
    for w in edges.values():
        rows = np.asarray(w, np.float64).reshape(*share.shape, -1)
        apart = rows - (share[:, None] @ rows)
        total += (share * (apart**2).sum(2)).sum(1)
    return total
