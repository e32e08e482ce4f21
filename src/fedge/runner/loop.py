"""The loop: train a round, test, write down, save; and pick up where a stopped run left off."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from fedge.core import tree
from fedge.core.contract import Gossip, State
from fedge.data import DATASETS, Dataset
from fedge.engine import Engine
from fedge.engine.mesh import here
from fedge.errors import ConfigError, RunError
from fedge.experiment.build import Experiment, Optimiser, experiment
from fedge.experiment.checks import CUSTOM
from fedge.experiment.config import Config, words
from fedge.models import Model
from fedge.runner import device, record
from fedge.runner.cache import Workshop
from fedge.runner.costs import Costs
from fedge.runner.metrics import Examiner
from fedge.runner.record import Row


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
log = logging.getLogger(__name__)


def run(
    config: Config | Keys | None = None, *, out: str | Path | None = None, resume: str | Path | None = None,
    dataset: Dataset | None = None, model: Model | str | None = None, optimiser: Optimiser | None = None,
    listener: Listener | None = None, workshop: Workshop | None = None, hosts: str | None = None, **keys: Any,
) -> Result:  # fmt: skip
    """Run one experiment. Keys are those of the command line: `fedge.run(algorithm="hierfavg", clients=20)`.

    `dataset`, `model` and `optimiser` (learning rate → optax transformation) may be objects of your own in place of
    the configured ones. `resume` continues the run in that folder. Runs with one `workshop` share compiled programs.
    `hosts` is for one run by several processes (docs/hosts.md); the first of them writes.
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
        config = resolved(given | keys, dataset, model, optimiser)
    if hosts is not None and config.engine == "reference":
        raise ConfigError("engine=reference runs in one process; leave hosts out")
    for key, passed in (("data", dataset), ("model", model), ("optimizer", optimiser)):
        if getattr(config, key) == CUSTOM and passed is None:
            raise ConfigError(f"{key}=custom means an object passed in from Python; pass it (again) or name one of: "
                              f"{', '.join(words(key))}")  # fmt: skip

    with ready(config, hosts):
        made = experiment(config, dataset, model, optimiser)
        costs = Costs(made)
        workshop = workshop or Workshop()
        engine = workshop.engine(made)  # refuses what the machine cannot do before a folder is made
        made = replace(made, config=config.model_copy(update={"rounds": costs.rounds} | engine.layout))
        if not device.leads():
            return _follow(
                made, costs, engine, Examiner([made], workshop), folder if resume is not None else None, began
            )
        if resume is not None:
            _same_place(made, folder)
        else:
            folder = record.create(Path(out) if out is not None else default_folder(config.algorithm))
            record.write_json(folder / "config.json", made.config.model_dump())
            record.write_json(folder / "run.json", record.environment(config.seed) | digest(made) | mixing(made))
        return _train(made, costs, engine, Examiner([made], workshop), folder, listener or Listener(), began)


def _follow(
    made: Experiment, costs: Costs, engine: Engine, evaluate: Examiner, resumed: Path | None, began: float
) -> Result:
    """The same run in a process that does not lead: what it writes is not kept, what it resumes is not touched."""
    with tempfile.TemporaryDirectory(prefix="fedge-") as place:
        folder = Path(place)
        if resumed is not None:
            for name in ("checkpoint.safetensors", "metrics.jsonl"):
                if (resumed / name).exists():
                    shutil.copyfile(resumed / name, folder / name)
        return _train(made, costs, engine, evaluate, folder, Listener(), began)


def resolved(keys: Keys, dataset: Dataset | None, model: Model | None, optimiser: Optimiser | None) -> Config:
    """The configuration of a run in which objects passed in go before keys."""
    custom = {"data": dataset.name if dataset.name in DATASETS else CUSTOM} if dataset is not None else {}
    custom |= {"model": CUSTOM} if model is not None else {}
    custom |= {"optimizer": CUSTOM} if optimiser is not None else {}
    return Config.of(dict(keys) | custom)


@contextlib.contextmanager
def ready(config: Config, hosts: str | None = None) -> Iterator[None]:
    """JAX with the devices and the precision of a configuration."""
    device.prepare(config.devices, hosts)
    with jax.enable_x64(True) if config.dtype == "float64" else contextlib.nullcontext():
        yield


def default_folder(name: str) -> Path:
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    base = Path("runs") / f"{name}-{stamp}"
    number = 1
    folder = base
    while folder.exists():
        number += 1
        folder = base.with_name(f"{base.name}-{number}")
    return folder


def _train(
    made: Experiment, costs: Costs, engine: Engine, evaluate: Examiner, folder: Path, listener: Listener,
    began: float,
) -> Result:  # fmt: skip
    config = made.config
    state, first, history = _restore(made, costs, folder)
    _agreed(made, first)
    if (folder / "result.json").exists() and not costs.more(first):
        log.info("the run in %s was already complete", folder)
        return _finished(made, record.read_json(folder / "result.json"), state, folder)
    if first:
        log.info("continuing after round %d%s", first, f" of {costs.rounds}" if costs.rounds else "")
    listener.ready(made, folder)
    seconds, done, compiled_before = 0.0, first, engine.compile_seconds
    while costs.more(done):
        end = costs.until(done, config.eval_every, config.checkpoint_every)
        tick = time.perf_counter()
        state, train_loss = engine.rounds(state, done, end - done)
        seconds += time.perf_counter() - tick
        done, whole = end, here(state)
        over, spent = not costs.more(done), costs.after(done)
        if done % config.eval_every == 0 or over:
            cost = {"bytes": spent.sent, "simulated_seconds": spent.seconds}
            row = evaluate(jax.tree.map(lambda x: x[None], whole), done, [train_loss])[0] | cost
            record.append_row(folder, row)
            history.append(row)
            listener.round(row, config)
        if config.checkpoint_every and done % config.checkpoint_every == 0 and not over:
            record.save_state(folder / "checkpoint.safetensors", whole, round=done)

    state = here(state)
    weights = made.evaluated(state)
    record.save_state(folder / "checkpoint.safetensors", state, round=done)
    record.save_state(folder / "weights.safetensors", weights)
    steps, compiling = made.job.steps_per_round * (done - first), engine.compile_seconds - compiled_before
    result = Result(
        algorithm=config.algorithm,
        config=config,
        history=history,
        wall_seconds=time.perf_counter() - began,
        compile_seconds=compiling,
        client_steps_per_second=steps / max(seconds - compiling, 1e-9) if steps else 0.0,
        parameters=made.model.parameters,
        out=folder,
        weights=weights,
        experiment=made,
    )
    record.write_json(folder / "ledger.json", costs.links(done))
    record.write_json(folder / "result.json", result.to_json())
    listener.finished(result)
    return result


def _agreed(made: Experiment, first: int) -> None:
    """Several processes must run the same experiment from the same round on."""
    if device.processes() == 1:
        return
    what = json.dumps([made.config.model_dump(), digest(made), first], sort_keys=True)
    words = np.frombuffer(hashlib.sha256(what.encode()).digest(), np.int32)
    if (multihost_utils.process_allgather(words) != words).any():
        raise RunError("the processes were given different words, data or checkpoints; give all of them the same")


def _restore(made: Experiment, costs: Costs, folder: Path) -> tuple[State, int, list[Row]]:
    """(state, rounds done, rows so far): from the checkpoint where there is one, from the start otherwise."""
    path = folder / "checkpoint.safetensors"
    if not path.exists():
        return made.start, 0, record.rewind(folder, [])
    state, notes = record.load_state(path, made.start)
    done = notes.get("round", 0)
    if done < 1 or not costs.more(done - 1):
        raise RunError(f"{path} was saved after round {done}, which is not one of this run")
    every = made.config.eval_every
    return (
        state,
        done,
        record.rewind(folder, [r for r in range(1, done + 1) if r % every == 0 or (r == done and not costs.more(r))]),
    )


def _finished(made: Experiment, stored: dict[str, Any], state: State, folder: Path) -> Result:
    """A run that was already over, as it was recorded."""
    numbers = {k: stored[k] for k in ("wall_seconds", "compile_seconds", "client_steps_per_second", "parameters")}
    return Result(
        algorithm=made.config.algorithm, config=made.config, history=stored["history"], out=folder,
        weights=made.evaluated(state), experiment=made, **numbers,
    )  # fmt: skip


def mixing(made: Experiment) -> dict[str, Any]:
    """What gossip does to a disagreement, where edges gossip."""
    exchange = made.job.algorithm.exchange
    if not isinstance(exchange, Gossip):
        return {}
    zeta, steps = exchange.zeta, exchange.steps
    return {"zeta": zeta, "zeta_to_alpha": zeta**steps, "smallest_mixing_entry": float(exchange.mixing.min())}


def digest(made: Experiment) -> dict[str, Any]:
    """What identifies data that was passed in."""
    if made.config.data != CUSTOM:
        return {}
    total = hashlib.sha256()
    for array in (made.dataset.x_train, made.dataset.y_train, made.dataset.x_test, made.dataset.y_test):
        total.update(np.ascontiguousarray(array).view(np.uint8).data)
    return {"data_sha256": total.hexdigest()}


def _same_place(made: Experiment, folder: Path) -> None:
    """A resumed run must have its own data; other versions or hardware cost bit-identity, which is said aloud."""
    then, now = record.read_json(folder / "run.json"), record.environment(made.config.seed) | digest(made)
    if then.get("data_sha256") != now.get("data_sha256"):
        raise RunError(f"the data set passed in is not the one {folder} was begun with; pass that one")
    changed = [key for key in ("versions", "processor", "backend") if then.get(key) != now[key]]
    if changed:
        log.warning("%s differ from when %s was begun: results may differ in the last bits", ", ".join(changed), folder)
