"""Prepare a run for its first round: set up JAX, resolve objects passed in, make data, engine and costs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
from numpy.typing import ArrayLike

from fedge.core.objective import Objective
from fedge.data import Dataset
from fedge.engine import Engine
from fedge.errors import ConfigError
from fedge.experiment.build import Experiment, experiment
from fedge.experiment.checks import CUSTOM
from fedge.experiment.config import Config, allowed
from fedge.experiment.optimisers import Optimiser
from fedge.models import Model
from fedge.runner import device, identity
from fedge.runner.cache import ProgramCache
from fedge.runner.costs import Costs
from fedge.runner.metrics import Metrics

Keys = Mapping[str, Any]


@dataclass(frozen=True)
class Given:
    """These objects were passed in from Python in place of configured ones."""

    dataset: Dataset | None
    model: Model | None
    optimiser: Optimiser | None
    objective: Objective | None = None
    partition: ArrayLike | None = None  # a client for each training sample
    assign: ArrayLike | None = None  # a cell for each client
    init: Mapping[str, ArrayLike] | None = None  # weights to start from

    def take_arrays(self, keys: Keys) -> tuple[Given, dict[str, Any]]:
        """Part the arrays given for partition, assign or init, by the name of the key, from the keys."""
        arrays = {key: keys[key] for key in ("partition", "assign") if _is_array(keys.get(key))}
        arrays |= {"init": keys["init"]} if isinstance(keys.get("init"), Mapping) else {}
        return replace(self, **arrays), {key: value for key, value in keys.items() if key not in arrays}

    @property
    def arrays(self) -> dict[str, Any]:
        every = {"partition": self.partition, "assign": self.assign, "init": self.init}
        return {key: array for key, array in every.items() if array is not None}

    def resolve(self, keys: Keys) -> Config:
        """Return the configuration of a run in which objects passed in go before keys."""
        passed = {"model": self.model, "optimizer": self.optimiser, **self.arrays}
        custom = {key: CUSTOM for key, value in passed.items() if value is not None}
        if self.dataset is not None:  # a known name stands for known bits only
            custom["data"] = self.dataset.name if identity.is_known(self.dataset) else CUSTOM
            custom |= {"task": self.dataset.task} if "task" not in keys else {}
        if self.objective is not None:
            custom["task"] = CUSTOM
            if self.objective.task != "classification" and not {"partition"} & {*keys, *self.arrays}:
                custom["partition"] = "iid"
        config = Config.of(dict(keys) | custom)
        self.check(config)
        return config

    def check(self, config: Config) -> None:
        """Refuse a configuration that names an object which was not passed in."""
        passed: dict[str, Any] = {"data": self.dataset, "model": self.model, "optimizer": self.optimiser}
        passed |= {"task": self.objective, **self.arrays}
        for key in ("data", "model", "optimizer", "task", "partition", "assign", "init"):
            if getattr(config, key) == CUSTOM and passed.get(key) is None:
                raise ConfigError(
                    f"{key}=custom means an object passed in from Python; pass it (again) or name one of: "
                    f"{allowed(key)}"
                )

    def experiment(self, config: Config) -> Experiment:
        return experiment(
            config, self.dataset, self.model, self.optimiser, self.objective, self.partition, self.assign, self.init
        )


def part_model(model: Any, keys: Keys) -> tuple[Model | None, dict[str, Any]]:
    """Return the model that was passed in as an object, and the keys, among which its name or function goes."""
    if model is None or isinstance(model, Model):
        return model, dict(keys)
    return None, dict(keys) | {"model": model}


def _is_array(given: Any) -> bool:
    return isinstance(given, list | tuple) or hasattr(given, "__array__")


@contextlib.contextmanager
def ready(config: Config, devices: int, hosts: str | None = None) -> Iterator[None]:
    """Give JAX the devices and the precision of a configuration."""
    if hosts is not None and config.engine == "reference":
        raise ConfigError("engine=reference runs in one process; leave hosts out")
    device.prepare(devices, hosts)
    with jax.enable_x64(True) if config.dtype == "float64" else contextlib.nullcontext():
        yield


@dataclass(frozen=True, eq=False)
class Preparation:
    """A run needs all this before its first round; what cannot be was refused while it was made."""

    made: Experiment
    objects: dict[str, Any]  # digests of what was passed in
    costs: Costs
    engine: Engine
    evaluate: Metrics

    @classmethod
    def of(cls, config: Config, given: Given, cache: ProgramCache | None, layout: dict[str, int]) -> Preparation:
        given.check(config)
        made = given.experiment(config)
        made = replace(made, job=replace(made.job, devices=layout["devices"], chunk=layout["chunk"]))
        cache = cache or ProgramCache()
        made = cache.fit(made)
        costs = Costs(made)
        return cls(made, identity.objects(made, given.optimiser), costs, cache.engine(made), Metrics([made], cache))
