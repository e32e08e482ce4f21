"""Trackers are listeners that hand a run's keys and numbers to TensorBoard, MLflow or Weights & Biases.

    fedge.run(algorithm="hierfavg", listener=fedge.TensorBoard("runs/tensorboard"))

Each needs its package, which is imported when the tracker is made: pip install 'fedge[tensorboard]', 'fedge[mlflow]',
'fedge[wandb]'. A tracker sees what every listener sees; one of your own is as short as these.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from fedge.errors import ConfigError
from fedge.experiment.build import Experiment
from fedge.experiment.config import Config
from fedge.runner.listener import Listener
from fedge.runner.result import Result
from fedge.runner.rows import NUMBERS, Row

FINISHED = "finished"


def require(package: str, extra: str) -> Any:
    """Import a tracker's package, or say how to get it."""
    try:
        return import_module(package)
    except ImportError as problem:
        raise ConfigError(f"{extra} is not installed ({problem}); pip install 'fedge[{extra}]'") from None


def numbers_of(row: Row) -> dict[str, float]:
    """Return the numbers of a row by name; bytes are told tier by tier and all together."""
    found = {name: float(value) for name, value in row.items()
             if isinstance(value, NUMBERS) and name not in ("round", "bytes")}  # fmt: skip
    sent = {f"bytes/{tier}": float(size) for tier, size in row["bytes"].items()}
    return found | sent | {"bytes/all": sum(sent.values())}


class Tracker(Listener):
    """A tracker is told a run's keys, its rows and its end, be it while it goes on or from its record."""

    where = ""  # what to open, for people

    def begin(self, name: str, config: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def add(self, row: Row) -> None:
        raise NotImplementedError

    def end(self, state: str) -> None:
        raise NotImplementedError

    def ready(self, experiment: Experiment, out: Path) -> None:
        self.begin(out.name, experiment.config.model_dump())

    def tested(self, row: Row, config: Config) -> None:
        self.add(row)

    def finished(self, result: Result) -> None:
        self.end("diverged" if result.diverged else FINISHED)


class TensorBoard(Tracker):
    """This writes TensorBoard's event files, a folder for each run: tensorboard --logdir FOLDER."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self._folder = Path(folder or "runs/tensorboard")
        self._events = require("tensorboard.summary.writer.event_file_writer", "tensorboard")
        self._event = require("tensorboard.compat.proto.event_pb2", "tensorboard").Event
        self._summary = require("tensorboard.compat.proto.summary_pb2", "tensorboard").Summary
        self._hparams = require("tensorboard.plugins.hparams.summary_v2", "tensorboard")
        self._writer: Any = None
        self.where = f"tensorboard --logdir {self._folder}"

    def begin(self, name: str, config: Mapping[str, Any]) -> None:
        self._writer = self._events.EventFileWriter(str(self._folder / name.replace("/", "-")))
        given = {key: value for key, value in config.items() if isinstance(value, bool | int | float | str)}
        self._write(self._hparams.hparams_pb(given, trial_id=name), 0)

    def add(self, row: Row) -> None:
        values = [self._summary.Value(tag=tag, simple_value=value) for tag, value in numbers_of(row).items()]
        self._write(self._summary(value=values), row["round"])

    def end(self, state: str) -> None:
        self._writer.close()

    def _write(self, summary: Any, step: int) -> None:
        self._writer.add_event(self._event(wall_time=time.time(), step=int(step), summary=summary))


class MLflow(Tracker):
    """This fills an experiment of MLflow: in a folder, or where MLFLOW_TRACKING_URI says."""

    def __init__(self, folder: str | Path | None = None, experiment: str = "fedge") -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # or importing it would tell its makers
        mlflow = require("mlflow", "mlflow")
        self._entities, uri = mlflow.entities, None
        if folder is not None or "MLFLOW_TRACKING_URI" not in os.environ:
            place = Path(folder or "runs/mlflow").absolute()
            place.mkdir(parents=True, exist_ok=True)
            uri = f"sqlite:///{place / 'mlflow.db'}"
        try:
            self._client = mlflow.MlflowClient(tracking_uri=uri)
        except ImportError as problem:  # mlflow-skinny comes without what a database needs
            raise ConfigError(f"mlflow cannot open {uri} ({problem}); pip install 'fedge[mlflow]'") from None
        found = self._client.get_experiment_by_name(experiment)
        kept = (Path(folder or "runs/mlflow").absolute() / "artifacts").as_uri() if uri else None
        self._experiment = found.experiment_id if found else self._client.create_experiment(experiment, kept)
        self._run = ""
        self.where = f"mlflow ui --backend-store-uri {uri or os.environ['MLFLOW_TRACKING_URI']}"

    def begin(self, name: str, config: Mapping[str, Any]) -> None:
        self._run = self._client.create_run(self._experiment, run_name=name).info.run_id
        given = [self._entities.Param(key, str(value)) for key, value in config.items() if value is not None]
        self._client.log_batch(self._run, params=given)

    def add(self, row: Row) -> None:
        now, step = int(1000 * time.time()), int(row["round"])
        metrics = [self._entities.Metric(tag, value, now, step) for tag, value in numbers_of(row).items()]
        self._client.log_batch(self._run, metrics=metrics)

    def end(self, state: str) -> None:
        self._client.set_terminated(self._run, "FINISHED" if state == FINISHED else "FAILED")


class WandB(Tracker):
    """This logs to Weights & Biases: offline, for `wandb sync`, unless WANDB_MODE says otherwise."""

    def __init__(self, folder: str | Path | None = None, project: str = "fedge") -> None:
        self._wandb, self._project = require("wandb", "wandb"), project
        self._folder = Path(folder or "runs")
        self._mode = os.environ.get("WANDB_MODE", "offline")
        self._run: Any = None
        self.where = f"wandb sync {self._folder}/wandb/*" if self._mode == "offline" else "your project at wandb"

    def begin(self, name: str, config: Mapping[str, Any]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._run = self._wandb.init(project=self._project, name=name, config=dict(config), dir=str(self._folder),
                                     mode=self._mode, reinit="finish_previous")  # fmt: skip

    def add(self, row: Row) -> None:
        self._run.log(numbers_of(row), step=int(row["round"]))

    def end(self, state: str) -> None:
        self._run.finish(exit_code=0 if state == FINISHED else 1)


TRACKERS: dict[str, Callable[[Path | None], Tracker]] = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WandB}
