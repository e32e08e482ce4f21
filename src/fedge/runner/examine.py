"""Testing a state: accuracy and loss of the evaluated model and, where edges keep their own models, of those too."""

from __future__ import annotations

import logging
import math

import numpy as np

from fedge.core import tree
from fedge.core.contract import State
from fedge.core.topology import Topology
from fedge.runner.record import Row
from fedge.runner.setup import Experiment
from fedge.runner.workshop import Workshop

log = logging.getLogger(__name__)


class Examiner:
    def __init__(self, made: Experiment, workshop: Workshop) -> None:
        self._made = made
        self._test = workshop.test(made)
        self._train = workshop.train(made) if made.config.train_eval else None
        self._warned = False

    def __call__(self, state: State, done: int, train_loss: float) -> Row:
        made = self._made
        weights = made.evaluated(state)
        accuracy, loss = self._test(weights)
        row: Row = {
            "round": done,
            "iteration": done * made.job.algorithm.schedule.period,
            "accuracy": accuracy,
            "loss": loss,
            "train_loss": train_loss,
        }
        if self._train is not None:
            row["global_loss"] = self._train(weights)[1]
        if made.job.algorithm.edges is not None and (models := made.edges(state)) is not None:
            each = self._test.each(models)[0]
            row["edge_accuracy"] = float(each.mean())
            row["edge_accuracies"] = [float(a) for a in each]
            row["consensus"] = spread(made.job.algorithm.edges(state), made.job.algorithm.topology)
        if not self._warned and not all(math.isfinite(v) for v in row.values() if isinstance(v, float)):
            self._warned = True
            log.warning("round %d: training has diverged, its loss is not a finite number; lower lr", done)
        return {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in row.items()}


def spread(edges: tree.Weights, topology: Topology) -> float:
    """Σ_d m̃_d ‖w_d − u‖²: how far the edges are from agreeing."""
    share = topology.cell_weight
    total = 0.0
    for w in edges.values():
        rows = np.asarray(w, np.float64).reshape(len(share), -1)
        total += float(share @ ((rows - share @ rows) ** 2).sum(1))
    return total
