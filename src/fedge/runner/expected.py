"""Reckon what a run would cost, without training it: seconds, bytes, multiply-adds, memory, and who is waited for."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from fedge.core import tree
from fedge.core.client import normalise
from fedge.core.keys import root
from fedge.core.sampling import participants
from fedge.cost.bottlenecks import Bottleneck, bottlenecks
from fedge.cost.clock import Clock
from fedge.cost.memory import Holding
from fedge.cost.network_clock import NetworkClock, as_network
from fedge.cost.path import Path, Span
from fedge.cost.work import multiply_adds
from fedge.data import DATASETS, Dataset
from fedge.experiment.build import Experiment, experiment
from fedge.experiment.config import Config
from fedge.experiment.holding import holdings
from fedge.experiment.tasks import shape_of_samples
from fedge.runner.costs import Costs
from fedge.runner.prepare import ready
from fedge.runner.setting import few, spread

FOLLOWED = 100  # rounds whose critical path is found; they are as different as devices that come and go make them
MANY = 20_000  # clients of whom each would be followed by itself


def expected_costs(config: Config) -> dict[str, Any]:
    """Return what a run of this configuration would cost, per round and in all."""
    with ready(config, config.devices):
        return _expected(config)


def _expected(config: Config) -> dict[str, Any]:
    made = experiment(config, _stand_in(config))
    costs = Costs(made)
    rounds = costs.last()
    first, all_ = costs.after(1), costs.after(rounds)
    held = holdings(
        made.job.algorithm, made.job.task, made.model, made.clock.ledger, made.dataset, made.partition
    )  # fmt: skip
    paths, has_edges = _paths(made, rounds), made.job.algorithm.has_edges
    return {
        "algorithm": made.config.algorithm,
        "network": made.config.network,
        "clients": made.topology.clients,
        "cells": made.topology.cells if has_edges else 0,
        "model": made.model.name,
        "parameters": made.model.parameters,
        "rounds": rounds,
        "iterations": rounds * made.job.algorithm.schedule.period,
        "seconds": {"round": first.seconds, "run": all_.seconds},
        "bytes": {"round": first.sent, "run": all_.sent},
        "links": {tier: spread(each) | {"each": few(each)} for tier, each in made.clock.ledger.round(0).items()},
        "multiply_adds": _work(made, rounds),
        "client_memory": _parts_of(max((own.client for own in held), key=lambda one: one.total)),
        "edge_memory": _parts_of(max((own.edge for own in held), key=lambda one: one.total)) if has_edges else None,
        "path": [] if paths is None else [span._asdict() for span in _sum(paths).spans],
        "rounds_followed": 0 if paths is None else len(paths),
        "round_paths": [[span._asdict() for span in path.spans] for path in paths or []],
        "round_set_by": {} if paths is None else dict(Counter(path.spans[0].who for path in paths if path.spans)),
    }


def _parts_of(held: Holding) -> dict[str, int]:
    return held._asdict() | {"total": held.total}


def _stand_in(config: Config) -> Dataset | None:
    """Return data of the shape of a known set, which need not be there: what is in them costs nothing."""
    source = DATASETS.get(config.data)
    if source is None:
        return None
    x, y = ([np.broadcast_to(np.uint8(0), source.shapes[f"x_{part}"]) for part in ("train", "test")],
            [np.arange(count, dtype=np.int32) % 10 for count in source.samples])  # fmt: skip
    return Dataset(source.name, x[0], y[0], x[1], y[1], 10, source.scale)


def _work(made: Experiment, rounds: int) -> dict[str, Any]:
    """Count multiply-adds; a backward pass is two forward ones, and who has a part of the model does its share."""
    task, clock, algorithm = made.job.task, made.clock, made.job.algorithm
    stored = shape_of_samples(made.dataset.x_train, 1)
    sample = jax.eval_shape(lambda x: normalise(x, task.scale, task.dtype), stored)
    weights = jax.eval_shape(lambda: tree.cast(made.model.initialise(root(0)), task.dtype))
    forward = multiply_adds(lambda w, x: made.model(w, x, train=True, key=root(0))[0], weights, sample)
    below = 1.0 if clock.ledger.cut is None else clock.ledger.cut.client_work
    whole = (
        3.0
        * forward
        * task.batch
        * algorithm.schedule.period
        * np.broadcast_to(clock.work, (algorithm.topology.cells,))
    )
    active = np.array([participants(len(own), made.config.participation) for own in algorithm.topology.roster])
    round_ = float((active * whole).sum())
    return {
        "sample": forward,
        "client_round": spread(below * whole),
        "clients_round": below * round_,
        "edges_round": (1 - below) * round_,
        "run": rounds * round_,
    }


def _paths(made: Experiment, rounds: int) -> list[Path] | None:
    """Find what set the length of each of the first rounds; None where there are too many clients to follow each."""
    clock = made.clock
    if isinstance(clock, Clock) and clock.equal:
        return [_parts(clock)]
    if made.topology.clients > MANY:
        return None
    followed, found = clock if isinstance(clock, NetworkClock) else as_network(clock), []
    ready = followed.start
    for index in range(min(rounds, FOLLOWED)):
        paths = [Path() for _ in ready]
        ready = followed.advance(ready, index, None, paths)
        found.append(paths[int(ready.argmax())])
    return found


def _parts(clock: Clock) -> Path:
    """Part a round of equal devices: a part takes as long as the round is shorter without it."""

    def takes(**free: Any) -> float:
        return float(replace(clock, rates=replace(clock.rates, **free)).advance(clock.start, 0).max())

    has_edges, inf = clock.ledger.algorithm.has_edges, math.inf
    whole, path = takes(), Path()
    edges = whole - takes(edge_speed=inf)
    path.add((
        Span("clients", "compute", whole - takes(step_seconds=0.0) - edges),
        Span("edges", "compute", edges),
        Span("clients", "send and receive", whole - takes(uplink_bps=inf) if has_edges else 0.0),
        Span("edges" if has_edges else "clients", "exchange models with the cloud", whole - takes(cloud_bps=inf)),
        Span("edges", "exchange models with each other", whole - takes(edge_bps=inf)),
    ))  # fmt: skip
    return path


def _sum(paths: list[Path]) -> Path:
    whole = Path()
    for path in paths:
        whole.add(path.spans)
    return whole


def bottlenecks_of(config: Config) -> tuple[list[Bottleneck], str]:
    """Return what takes longest on each tier of a configuration's network, and what was asked about, in words."""
    with ready(config, config.devices):
        made = experiment(config, _stand_in(config))
        assert isinstance(made.clock, NetworkClock)
        model = f"{made.model.name} ({made.model.parameters:,} parameters)"
        return bottlenecks(made.clock), f"{made.config.algorithm}, {model} and batch {made.config.batch}"
