"""What runs of one data set and one model share: compiled programs, and images on the devices."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedge.engine import ENGINES, Engine
from fedge.engine.evaluate import Evaluator
from fedge.runner.config import CUSTOM
from fedge.runner.setup import Experiment

PER_RUN = {  # keys that do not shape a compiled program
    "seed", "lr", "partition", "class_split", "concentration", "assign", "rounds", "cycles_per_bit", "cpu_hz",
    "edge_hz", "uplink_bps", "edge_bps", "cloud_bps", "device_spread", "link_spread", "straggle", "downlink",
    "budget_seconds", "budget_bytes", "train_eval", "eval_every", "checkpoint_every",
}  # fmt: skip


class Workshop:
    """A sweep over seeds, rates or partitions compiles once. Only for runs on one data set and one model."""

    def __init__(self) -> None:
        self._engines: dict[str, Engine] = {}
        self._evaluators: dict[str, Evaluator] = {}

    def engine(self, made: Experiment) -> Engine:
        sizes = [len(own) for own in made.job.algorithm.topology.roster]
        key = made.config.model_dump_json(exclude=PER_RUN) + str((sizes, len(made.job.data.order)))
        if CUSTOM in (made.config.data, made.config.model, made.config.optimizer):  # the same name, another object
            return ENGINES[made.config.engine](made.job)
        if key in self._engines:
            self._engines[key].retarget(made.job)
            self._engines[key].compile_seconds = 0.0
        else:
            self._engines[key] = ENGINES[made.config.engine](made.job)
        return self._engines[key]

    def test(self, made: Experiment) -> Evaluator:
        key = "test" + self._key(made)
        if key not in self._evaluators:
            self._evaluators[key] = _evaluator(made, np.asarray(made.dataset.x_test), np.asarray(made.dataset.y_test))
        return self._evaluators[key]

    def train(self, made: Experiment) -> Evaluator:
        """On every sample that some client holds."""
        data, used = made.dataset, np.concatenate(made.partition.samples)
        if len(used) < len(data.x_train):
            return _evaluator(made, data.x_train[used], data.y_train[used])
        key = "train" + self._key(made)
        if key not in self._evaluators:
            self._evaluators[key] = _evaluator(made, np.asarray(data.x_train), np.asarray(data.y_train))
        return self._evaluators[key]

    def _key(self, made: Experiment) -> str:
        if CUSTOM in (made.config.data, made.config.model):
            return str((id(made.dataset), id(made.model)))
        return made.config.model_dump_json(include={"model", "bn", "dropout", "dtype", "devices"})


def _evaluator(made: Experiment, x: Any, y: Any) -> Evaluator:
    return Evaluator(made.model, x, y, made.dataset.scale, made.job.task.dtype, made.config.devices)
