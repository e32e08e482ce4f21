"""The loop: train a round, test, write down, save; and pick up where a stopped run left off."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import jax

from fedge.core import tree
from fedge.core.contract import State
from fedge.data import Dataset
from fedge.engine import ENGINES, Engine
from fedge.engine.evaluate import Evaluator
from fedge.errors import ConfigError, RunError
from fedge.models import Model
from fedge.runner import device, record
from fedge.runner.config import CUSTOM, Config
from fedge.runner.record import Row
from fedge.runner.setup import Experiment, Optimiser, experiment


@dataclass(frozen=True, eq=False)
class Result:
    algorithm: str
    config: Config
    history: list[Row]
    wall_seconds: float
    compile_seconds: float
    client_steps_per_second: float
    parameters: int
    out: Path
    weights: tree.Weights = field(repr=False)
    experiment: Experiment = field(repr=False)

    @property
    def final(self) -> Row:
        return self.history[-1]

    def to_json(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm,
            "config": self.config.model_dump(),
            "history": self.history,
            "final": self.final,
            "wall_seconds": round(self.wall_seconds, 3),
            "compile_seconds": round(self.compile_seconds, 3),
            "client_steps_per_second": round(self.client_steps_per_second, 1),
            "parameters": self.parameters,
            "out": str(self.out),
        }


class Listener:
    """What a run tells while it goes on. The default listens to nothing."""

    def ready(self, experiment: Experiment, out: Path) -> None: ...
    def round(self, row: Row, config: Config) -> None: ...
    def finished(self, result: Result) -> None: ...


Keys = Mapping[str, Any]


def run(
    config: Config | Keys | None = None, *, out: str | Path | None = None, resume: str | Path | None = None,
    dataset: Dataset | None = None, model: Model | str | None = None, optimiser: Optimiser | None = None,
    listener: Listener | None = None, **keys: Any,
) -> Result:  # fmt: skip
    """Run one experiment. Keys are those of the command line: `fedge.run(algorithm="hierfavg", clients=20)`.

    `dataset`, `model` and `optimiser` (learning rate → optax transformation) may be objects of your own in place of
    the configured ones. `resume` continues the run in that folder.
    """
    began = time.perf_counter()
    if isinstance(model, str):
        keys, model = keys | {"model": model}, None
    if resume is not None:
        if config is not None or keys or out is not None:
            raise ConfigError("a resumed run keeps its own configuration and folder; give resume alone")
        folder = Path(resume)
        config = Config.of(record.read_json(folder / "config.json"))
    else:
        given = config.model_dump() if isinstance(config, Config) else dict(config or {})
        custom = {"data": CUSTOM} if dataset is not None else {}
        custom |= {"model": CUSTOM} if model is not None else {}
        config = Config.of(given | keys | custom)
    if (config.data == CUSTOM) != (dataset is not None) or (config.model == CUSTOM) != (model is not None):
        raise ConfigError("this run needs the data set and model that were passed in from Python; pass them again")

    device.prepare(config.devices)
    x64 = config.dtype == "float64"
    with jax.enable_x64(True) if x64 else contextlib.nullcontext():
        made = experiment(config, dataset, model, optimiser)
        engine = ENGINES[config.engine](made.job)  # refuses what the machine cannot do before a folder is made
        if resume is None:
            folder = record.create(Path(out) if out is not None else default_folder(config.algorithm))
            record.write_json(folder / "config.json", config.model_dump())
            record.write_json(folder / "run.json", record.environment(config.seed))
        return _train(made, engine, folder, listener or Listener(), began)


def default_folder(name: str) -> Path:
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    base = Path("runs") / f"{name}-{stamp}"
    number = 1
    folder = base
    while folder.exists():
        number += 1
        folder = base.with_name(f"{base.name}-{number}")
    return folder


def _train(made: Experiment, engine: Engine, folder: Path, listener: Listener, began: float) -> Result:
    config = made.config
    evaluate = Evaluator(
        made.model, made.dataset.x_test, made.dataset.y_test, made.dataset.scale, made.job.task.dtype, config.devices
    )
    state, first, history = _restore(made, folder)
    listener.ready(made, folder)
    seconds = 0.0
    for index in range(first, config.rounds):
        tick = time.perf_counter()
        state, train_loss = engine.round(state, index)
        seconds += time.perf_counter() - tick
        done = index + 1
        if done % config.eval_every == 0 or done == config.rounds:
            row = _row(made, evaluate, state, done, train_loss)
            record.append_row(folder, row)
            history.append(row)
            listener.round(row, config)
        if config.checkpoint_every and done % config.checkpoint_every == 0 and done < config.rounds:
            record.save_state(folder / "checkpoint.safetensors", state, round=done)

    weights = made.evaluated(state)
    record.save_state(folder / "checkpoint.safetensors", state, round=config.rounds)
    record.save_state(folder / "weights.safetensors", weights)
    steps = made.job.steps_per_round * (config.rounds - first)
    result = Result(
        algorithm=config.algorithm,
        config=config,
        history=history,
        wall_seconds=time.perf_counter() - began,
        compile_seconds=engine.compile_seconds,
        client_steps_per_second=steps / max(seconds - engine.compile_seconds, 1e-9) if steps else 0.0,
        parameters=made.model.parameters,
        out=folder,
        weights=weights,
        experiment=made,
    )
    record.write_json(folder / "result.json", result.to_json())
    listener.finished(result)
    return result


def _restore(made: Experiment, folder: Path) -> tuple[State, int, list[Row]]:
    """(state, rounds done, rows so far): from the checkpoint where there is one, from the start otherwise."""
    path = folder / "checkpoint.safetensors"
    if not path.exists():
        return made.start, 0, record.rewind(folder, 0)
    state, notes = record.load_state(path, made.start)
    if not 0 < notes.get("round", 0) <= made.config.rounds:
        raise RunError(f"{path} was saved after round {notes.get('round')}, which is not one of this run")
    return state, notes["round"], record.rewind(folder, notes["round"])


def _row(made: Experiment, evaluate: Evaluator, state: State, done: int, train_loss: float) -> Row:
    accuracy, loss = evaluate(made.evaluated(state))
    return {
        "round": done,
        "iteration": done * made.job.algorithm.schedule.period,
        "accuracy": accuracy,
        "loss": loss,
        "train_loss": train_loss,
    }
