"""Estimate a theory's constants along a run, and put its bounds beside what happened.

A run keeps its last two states only, and constants differ from model to model. So the run is made again from its
record, or for the first time from its keys, and stops now and then for a probe: training is deterministic, and the
models are those of the run. Where the record has its last model, the two are compared.
"""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedge.core.objective import Objective
from fedge.core.update import PLAIN
from fedge.data import Dataset
from fedge.errors import ConfigError, RunError
from fedge.experiment.build import Experiment
from fedge.experiment.config import Config
from fedge.experiment.optimisers import Optimiser
from fedge.models import Model
from fedge.runner import checkpoint, record, sources
from fedge.runner.loop import is_finite
from fedge.runner.prepare import Given, Keys, Preparation, ready
from fedge.runner.rows import read_rows
from fedge.studies.words import PROBES
from fedge.theory.constants import Constant, Measurements, as_numbers, bounds, constants, verdict
from fedge.theory.probe import CURVED, Measured, Probe

SAME = 1e-4  # by which the weights of a run made again may differ, relatively: sums on another machine are rounded anew
TINY = 1e-9  # what rounding may move a weighted mean by
THEORIES = {"fedavg": "sdfeel", "hierfavg": "sdfeel", "hfedavg": "sdfeel", "sdfeel": "sdfeel", "hist": "hist",
            "hiersfl": "hiersfl"}  # fmt: skip
log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Estimate:
    """This is what probes found along a run, and what the theory makes of it."""

    config: Config
    measurements: Measurements
    uncovered: tuple[str, ...]  # why no bound speaks of this run; empty where the bounds do
    notes: tuple[str, ...]

    @property
    def constants(self) -> list[Constant]:
        return constants(self.measurements)

    @property
    def curved(self) -> int:
        """Count the clients whose curvature was found."""
        return min(CURVED, self.measurements.topology.clients)

    def to_json(self) -> dict[str, Any]:
        m = self.measurements
        found = {} if self.uncovered else bounds(m)
        start = m.found[0].gradient2
        return {
            "algorithm": self.config.algorithm,
            "config": self.config.model_dump(),
            "theory": m.theory,
            "layers": list(m.layers),
            "gradient2": {"start": start, "mean": m.gradient2, "last": m.found[-1].gradient2},
            "constants": [c._asdict() for c in self.constants],
            "bounds": {name: {**as_numbers(b), "verdict": verdict(b, start, m.gradient2)} for name, b in found.items()},
            "uncovered": list(self.uncovered),
            "notes": list(self.notes),
            "probes": [
                {"round": n, "iteration": n * m.period} | asdict(p) for n, p in zip(m.rounds, m.found, strict=True)
            ],
        }


def estimate(
    config: Config | Keys | None = None, *, run: str | Path | None = None, probes: int = PROBES,
    dataset: Dataset | None = None, model: Model | None = None, optimiser: Optimiser | None = None,
    objective: Objective | None = None, **keys: Any,
) -> Estimate:  # fmt: skip
    """Measure along the run in the folder `run`, or along one with these keys, at so many models."""
    if not 2 <= probes <= 1000:
        raise ConfigError(f"probes={probes} is not allowed; allowed: an integer ≥ 2 and ≤ 1000")
    plain = config.model_dump(exclude_unset=True) if isinstance(config, Config) else dict(config or {})
    given, plain = Given(dataset, model, optimiser, objective).take_arrays(plain | keys)
    if run is not None:
        if plain:
            raise ConfigError("a run that was made keeps its own keys; give its folder alone")
        return _of_run(Path(run), given, probes)
    chosen = given.resolve(plain)
    if chosen.target is not None:
        raise ConfigError("target ends a run when it is reached, and an estimate needs its rounds; leave target out")
    with ready(chosen, chosen.devices):
        job = Preparation.of(chosen, given, None, {"devices": chosen.devices, "chunk": chosen.chunk})
        return _measure(job, job.costs.last(), probes)[0]


def _of_run(folder: Path, given: Given, probes: int) -> Estimate:
    """Make the run in a folder again, with probes."""
    kept = record.reopen(folder)
    sources.require(folder, kept.about["objects"])
    rows = read_rows(folder / record.METRICS)
    if not rows:
        raise RunError(f"{folder} has not finished a round yet; there is nothing to measure along")
    config = Config.of(kept.config)
    with ready(config, config.devices):
        job = Preparation.of(config, given, None, {"devices": config.devices, "chunk": config.chunk})
        sources.require_same(folder, kept.about["objects"], job.objects, same_jax=False)
        found, last = _measure(job, rows[-1][0], probes)
    if not (folder / record.WEIGHTS).exists():
        return found
    stored = checkpoint.read_arrays(folder / record.WEIGHTS)[0]
    apart = sum(float(((np.asarray(last[p]) - w) ** 2).sum()) for p, w in stored.items())
    size = sum(float((w.astype(np.float64) ** 2).sum()) for w in stored.values())
    off = float(np.sqrt(apart / max(size, 1e-30)))
    if not off <= SAME:
        log.warning("%s was made again and its weights differ by %.2g, relatively: its code, data or JAX changed since",
                    folder, off)  # fmt: skip
    said = "the run made again has the recorded weights" + ("" if off == 0 else f", but for {off:.1e} of their norm")
    return Estimate(found.config, found.measurements, found.uncovered, (*found.notes, said))


def _measure(job: Preparation, rounds: int, probes: int) -> tuple[Estimate, dict[str, Any]]:
    """Train with a probe at the start, after the last round and evenly between; return the last model too."""
    made, state = job.made, job.made.start
    algorithm, model = made.job.algorithm, made.model
    probe = Probe(made.job.task, made.job.data, algorithm.topology, model.stage_of, model.stages, made.job.key)
    at = sorted({round(n) for n in np.linspace(0, rounds, probes)})
    found: list[Measured] = []
    notes: list[str] = []
    weights, after_step, done, began = made.evaluated(state), 0.0, 0, time.monotonic()
    for number in at:
        if number > done:
            state, _ = job.engine.rounds(state, done, number - done)
            done = number
        if not is_finite(state):
            notes.append(f"training diverged before round {number}; nothing was measured from there on")
            break
        weights = made.evaluated(state)
        found.append(probe.measure(weights))
        if not number:
            after_step = probe.loss_after_step(weights, made.config.lr)
        left = (time.monotonic() - began) / len(found) * (len(at) - len(found))
        log.info("measured after round %d of %d%s", number, rounds, f", about {left:.0f} s left" if left > 1 else "")
    if len(found) < 2:
        raise RunError("training diverged before a second model could be measured; try a lower lr")
    gossip, on_client = algorithm.gossip, algorithm.client_stages or ()
    if made.config.sampler != "iid":
        notes.append("minibatches are drawn without replacement; the papers draw each anew, as sampler=iid does")
    measurements = Measurements(
        theory=THEORIES.get(made.config.algorithm, "sdfeel"),
        topology=algorithm.topology,
        tau1=algorithm.schedule.local_steps,
        tau2=algorithm.schedule.edge_rounds,
        q=float(gossip.zeta**gossip.steps) if gossip is not None else 0.0,
        cut=len(on_client),
        layers=tuple(model.stages),
        lr=made.config.lr,
        rounds=at[: len(found)],
        found=found,
        after_step=after_step,
    )
    return Estimate(made.config, measurements, tuple(uncovered(made)), tuple(notes)), dict(weights)


def uncovered(made: Experiment) -> list[str]:
    """Say what of a run no bound speaks of."""
    config, algorithm = made.config, made.job.algorithm
    declared = config.declared
    share, gossip = algorithm.topology.cell_weight, algorithm.gossip
    loses = gossip is not None and float(np.abs(gossip.mixing @ share - share).max()) > TINY
    why = [
        (config.algorithm not in THEORIES, f"there is no theory of {config.algorithm} here"),
        (config.optimizer != "sgd" or config.momentum > 0 or config.weight_decay > 0, "clients take plain SGD steps"),
        (config.participation < 1, "every client takes part"),
        (config.dropout > 0, "there is no dropout"),
        (algorithm.way != PLAIN or declared.get("server", "none") != "none", "updates travel as they are"),
        (declared.get("submodels") not in (None, config.cells), "there are as many submodels as cells"),
        (declared.get("out_bias", "owner") != "owner", "out_bias=owner"),
        (loses, "gossip keeps the weighted mean of the edges' models, which mixing=printed does for equal cells only"),
    ]
    return [said if n == 0 else f"the bounds assume that {said}" for n, (holds, said) in enumerate(why) if holds]
