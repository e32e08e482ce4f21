"""The loop: train a round, test, write down, save; and pick up where a stopped run left off."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedge.core import tree
from fedge.core.contract import Gossip, State
from fedge.core.topology import Topology
from fedge.cost.ledger import directed, totals
from fedge.data import DATASETS, Dataset
from fedge.engine import ENGINES, Engine
from fedge.engine.evaluate import Evaluator
from fedge.errors import ConfigError, RunError
from fedge.models import Model
from fedge.runner import device, record
from fedge.runner.config import CUSTOM, Config, words
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
log = logging.getLogger(__name__)
PER_RUN = {  # keys that do not shape a compiled program
    "seed", "lr", "partition", "class_split", "concentration", "assign", "rounds", "cycles_per_bit", "cpu_hz",
    "uplink_bps", "edge_bps", "cloud_bps", "device_spread", "link_spread", "straggle", "downlink", "budget_seconds",
    "budget_bytes", "train_eval", "eval_every", "checkpoint_every",
}  # fmt: skip


class Workshop:
    """Engines by the shape of their programs, so that a sweep over seeds, rates or partitions compiles once.

    Only for runs on one data set and one model.
    """

    def __init__(self) -> None:
        self._engines: dict[str, Engine] = {}

    def engine(self, made: Experiment) -> Engine:
        sizes = [len(own) for own in made.job.algorithm.topology.roster]
        key = made.config.model_dump_json(exclude=PER_RUN) + str(sizes)
        if key in self._engines:
            self._engines[key].retarget(made.job)
            self._engines[key].compile_seconds = 0.0
        else:
            self._engines[key] = ENGINES[made.config.engine](made.job)
        return self._engines[key]


def run(
    config: Config | Keys | None = None, *, out: str | Path | None = None, resume: str | Path | None = None,
    dataset: Dataset | None = None, model: Model | str | None = None, optimiser: Optimiser | None = None,
    listener: Listener | None = None, workshop: Workshop | None = None, **keys: Any,
) -> Result:  # fmt: skip
    """Run one experiment. Keys are those of the command line: `fedge.run(algorithm="hierfavg", clients=20)`.

    `dataset`, `model` and `optimiser` (learning rate → optax transformation) may be objects of your own in place of
    the configured ones. `resume` continues the run in that folder. Runs with one `workshop` share compiled programs.
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
        custom = {"data": dataset.name if dataset.name in DATASETS else CUSTOM} if dataset is not None else {}
        custom |= {"model": CUSTOM} if model is not None else {}
        custom |= {"optimizer": CUSTOM} if optimiser is not None else {}
        config = Config.of(given | keys | custom)
    for key, passed in (("data", dataset), ("model", model), ("optimizer", optimiser)):
        if getattr(config, key) == CUSTOM and passed is None:
            raise ConfigError(f"{key}=custom means an object passed in from Python; pass it (again) or name one of: "
                              f"{', '.join(words(key))}")  # fmt: skip

    device.prepare(config.devices)
    x64 = config.dtype == "float64"
    with jax.enable_x64(True) if x64 else contextlib.nullcontext():
        made = experiment(config, dataset, model, optimiser)
        plan = price(made)
        engine = (workshop or Workshop()).engine(made)  # refuses what the machine cannot do before a folder is made
        made = replace(made, config=config.model_copy(update={"rounds": len(plan)} | engine.layout))
        if resume is not None:
            _same_place(made, folder)
        else:
            folder = record.create(Path(out) if out is not None else default_folder(config.algorithm))
            record.write_json(folder / "config.json", made.config.model_dump())
            record.write_json(folder / "run.json", record.environment(config.seed) | digest(made))
        return _train(made, plan, engine, folder, listener or Listener(), began)


def default_folder(name: str) -> Path:
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    base = Path("runs") / f"{name}-{stamp}"
    number = 1
    folder = base
    while folder.exists():
        number += 1
        folder = base.with_name(f"{base.name}-{number}")
    return folder


class Price(NamedTuple):
    """What a run has cost after a round."""

    sent: dict[str, int]  # bytes per tier, from the start
    seconds: float  # simulated, from the start


def price(made: Experiment) -> list[Price]:
    """The cost after each round that the configuration allows: all `rounds`, or those that fit the budgets."""
    config, clock = made.config, made.clock
    rounds: list[Price] = []
    ready, sent = clock.start, dict[str, int]()
    while config.rounds is None or len(rounds) < config.rounds:
        ready = clock.advance(ready, len(rounds))
        for tier, size in totals(clock.ledger.round(len(rounds))).items():
            sent[tier] = sent.get(tier, 0) + size
        total = {"budget_seconds": float(ready.max()), "budget_bytes": sum(sent.values())}
        for key, needed in total.items():
            budget = getattr(config, key)
            if budget is not None and needed > budget * (1 + 1e-12):
                if not rounds:
                    raise ConfigError(f"{key}={budget:g} does not cover one global round, which takes {needed:g}")
                return rounds
        rounds.append(Price(dict(sent), float(ready.max())))
    return rounds


def _train(
    made: Experiment, plan: list[Price], engine: Engine, folder: Path, listener: Listener, began: float
) -> Result:
    config = made.config
    evaluate = Examiner(made)
    state, first, history = _restore(made, folder)
    if (folder / "result.json").exists() and first == len(plan):
        log.info("the run in %s was already complete", folder)
        return _finished(made, record.read_json(folder / "result.json"), state, folder)
    if first:
        log.info("continuing after round %d of %d", first, len(plan))
    listener.ready(made, folder)
    seconds = 0.0
    for index in range(first, len(plan)):
        tick = time.perf_counter()
        state, train_loss = engine.round(state, index)
        seconds += time.perf_counter() - tick
        done = index + 1
        if done % config.eval_every == 0 or done == len(plan):
            row = evaluate(state, done, train_loss) | {
                "bytes": plan[index].sent,
                "simulated_seconds": plan[index].seconds,
            }
            record.append_row(folder, row)
            history.append(row)
            listener.round(row, config)
        if config.checkpoint_every and done % config.checkpoint_every == 0 and done < len(plan):
            record.save_state(folder / "checkpoint.safetensors", state, round=done)

    weights = made.evaluated(state)
    record.save_state(folder / "checkpoint.safetensors", state, round=len(plan))
    record.save_state(folder / "weights.safetensors", weights)
    steps = made.job.steps_per_round * (len(plan) - first)
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
    record.write_json(folder / "ledger.json", _ledger(made, len(plan)))
    record.write_json(folder / "result.json", result.to_json())
    listener.finished(result)
    return result


def _restore(made: Experiment, folder: Path) -> tuple[State, int, list[Row]]:
    """(state, rounds done, rows so far): from the checkpoint where there is one, from the start otherwise."""
    path, rounds = folder / "checkpoint.safetensors", made.config.rounds or 0
    if not path.exists():
        return made.start, 0, record.rewind(folder, [])
    state, notes = record.load_state(path, made.start)
    done = notes.get("round", 0)
    if not 0 < done <= rounds:
        raise RunError(f"{path} was saved after round {done}, which is not one of this run")
    every = made.config.eval_every
    return state, done, record.rewind(folder, [r for r in range(1, done + 1) if r % every == 0 or r == rounds])


def _finished(made: Experiment, stored: dict[str, Any], state: State, folder: Path) -> Result:
    """A run that was already over, as it was recorded."""
    numbers = {k: stored[k] for k in ("wall_seconds", "compile_seconds", "client_steps_per_second", "parameters")}
    return Result(
        algorithm=made.config.algorithm, config=made.config, history=stored["history"], out=folder,
        weights=made.evaluated(state), experiment=made, **numbers,
    )  # fmt: skip


def digest(made: Experiment) -> dict[str, Any]:
    """What identifies data that was passed in."""
    if made.config.data != CUSTOM:
        return {}
    total = hashlib.sha256()
    for array in (made.dataset.x_train, made.dataset.y_train, made.dataset.x_test, made.dataset.y_test):
        total.update(np.ascontiguousarray(array).tobytes())
    return {"data_sha256": total.hexdigest()}


def _same_place(made: Experiment, folder: Path) -> None:
    """A resumed run must have its own data; other versions or hardware cost bit-identity, which is said aloud."""
    then, now = record.read_json(folder / "run.json"), record.environment(made.config.seed) | digest(made)
    if then.get("data_sha256") != now.get("data_sha256"):
        raise RunError(f"the data set passed in is not the one {folder} was begun with; pass that one")
    changed = [key for key in ("versions", "processor", "backend") if then.get(key) != now[key]]
    if changed:
        log.warning("%s differ from when %s was begun: results may differ in the last bits", ", ".join(changed), folder)


def _ledger(made: Experiment, rounds: int) -> dict[str, Any]:
    """Bytes on every link over the whole run; links are clients, edges, or [from, to] between edges."""
    ledger = made.clock.ledger
    links: dict[str, Any] = {}
    for index in range(rounds):
        for tier, each in ledger.round(index).items():
            links[tier] = links.get(tier, 0) + each
    exchange = ledger.algorithm.exchange
    pairs = {"edge_to_edge_links": directed(exchange.graph)} if isinstance(exchange, Gossip) else {}
    return {tier: {"total": int(each.sum()), "links": each.tolist()} for tier, each in links.items()} | pairs


class Examiner:
    """Tests a state: the evaluated model and, where edges keep their own models, each of those too."""

    def __init__(self, made: Experiment) -> None:
        self._made = made
        data, task = made.dataset, made.job.task

        def evaluator(x: Any, y: Any) -> Evaluator:
            return Evaluator(made.model, x, y, data.scale, task.dtype, made.config.devices)

        self._test = evaluator(data.x_test, data.y_test)
        used = np.concatenate(made.partition.samples)
        self._train = evaluator(data.x_train[used], data.y_train[used]) if made.config.train_eval else None

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
        if made.job.algorithm.edges is not None:
            edges = made.job.algorithm.edges(state)
            each = [self._test({p: w[d] for p, w in edges.items()})[0] for d in range(made.config.cells)]
            row |= {"edge_accuracy": float(np.mean(each)), "consensus": spread(edges, made.job.algorithm.topology)}
        if not all(math.isfinite(v) for v in row.values()):
            log.warning("round %d: training has diverged, its loss is not a finite number; lower lr", done)
        return {key: v if math.isfinite(v) else None for key, v in row.items()}


def spread(edges: tree.Weights, topology: Topology) -> float:
    """Σ_d m̃_d ‖w_d − u‖²: how far the edges are from agreeing."""
    share = topology.cell_weight
    total = 0.0
    for w in edges.values():
        rows = np.asarray(w, np.float64).reshape(len(share), -1)
        total += float(share @ ((rows - share @ rows) ** 2).sum(1))
    return total
