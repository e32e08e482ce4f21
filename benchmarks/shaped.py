"""Run fleets over links as slow as SD-FEEL's, scaled, and put the clock's seconds beside those that were measured.

    make shaped            every algorithm; or python benchmarks/shaped.py [ALGORITHM …]

Each process has a network namespace of its own, and a veth link to each other process that it talks to, with a token
bucket at the sending end: client → edge at R, edge ↔ edge at 10 R, edge → cloud (FedAvg: client → cloud) at R/10, as in
SD-FEEL's experiments; downlinks are not limited, as in its latency model. R is SD-FEEL's 5.67 Mbit/s for itself, and
five times that where the slow links to a cloud are used, so that every round takes seconds. Clients compute next to
nothing (one step a round), so that links decide. It needs Linux and root, `ip` and `tc`. It ends with 1 where what was
measured is more than 15 % from what was predicted; headers of packets alone make 4.6 %.

A round's time is the mean over all rounds but the first, which compiles.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from statistics import mean

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.net.shaped import Network, why_not

from fedge.cost.clock import SHANNON
from fedge.experiment.build import experiment
from fedge.experiment.config import Config
from fedge.experiment.fleet_file import fleet_of
from fedge.fleet import folders
from fedge.runner.costs import Costs

SCALE = {"sdfeel": 1}  # of the rates; 5 for the others
ROUNDS = 5
WITHIN = 0.15
ALGORITHMS = ("fedavg", "hierfavg", "hist", "hiersfl", "sdfeel")
RUN = {"clients": 4, "cells": 2, "rounds": ROUNDS, "local_steps": 1, "edge_rounds": 1, "batch": 10,
       "eval_every": ROUNDS, "checkpoint_every": 0, "cpu_hz": 1e15, "edge_hz": 1e15}  # fmt: skip
PORT = 7400


def run_of(algorithm):
    """Return the keys of a run."""
    rate = SCALE.get(algorithm, 5) * SHANNON
    rates = {"uplink_bps": rate, "edge_bps": 10 * rate, "cloud_bps": rate / 10}
    return RUN | rates | {"algorithm": algorithm} | ({"graph": "path", "gossip": 1} if algorithm == "sdfeel" else {})


def predicted(made):
    """Return the seconds of a round by the clock, and the bytes that it sends."""
    costs = Costs(made)
    first, last = costs.after(1), costs.after(ROUNDS)
    sent = sum(last.sent.values()) - sum(first.sent.values())
    return (last.seconds - first.seconds) / (ROUNDS - 1), sent / (ROUNDS - 1)


def connect(network, fleet, cell_of):
    """Link each process to those it talks to, at the rates of the run."""
    run = fleet.run
    for node in fleet.nodes:
        network.namespace(node.label)
    for node in fleet.nodes:
        for other in fleet.dialled_by(node):
            there = other.names[0]
            if node.role == "client" and there.role == "edge" and cell_of[node.names[0].number] == there.number:
                network.connect(node.label, other.label, run["uplink_bps"])
            elif there.role == "cloud":
                network.connect(node.label, other.label, run["cloud_bps"])
            elif node.role == there.role == "edge" and node.names[0].number > there.number:
                network.connect(node.label, other.label, run["edge_bps"], run["edge_bps"])
            elif there.role == "monitor":
                network.connect(node.label, other.label, 1e10)  # who listens is no part of what is measured


def placed(run, network):
    """Return the fleet with each node at the address of its namespace, one client in a process."""
    tables = {"run": run, "fleet": {"per_process": 1}} | ({"monitor": {}} if run["algorithm"] == "sdfeel" else {})
    fleet = fleet_of(tables, "shaped")
    for node in fleet.nodes:
        network.namespace(node.label)
    at = {node.label: f"{network.address(node.label)}:{PORT}" for node in fleet.nodes if node.address}
    tables["edge"] = [{"number": n.names[0].number, "address": at[n.label]} for n in fleet.edges]
    for role in ("cloud", "monitor"):
        if role in at:
            tables[role] = {"address": at[role]}
    return fleet_of(tables, "shaped")


def measured(algorithm, made):
    """Run a fleet over shaped links; return the seconds of each round."""
    with tempfile.TemporaryDirectory(prefix="fedge-shaped-") as place, Network() as network:
        fleet = placed(run_of(algorithm), network)
        folders.make_folders(fleet, Path(place) / "nodes")
        connect(network, fleet, made.topology.cell)
        started = []
        try:
            for node in fleet.nodes:
                leads = node.role in ("cloud", "monitor")
                out = str(Path(place) / "run") if leads else None
                words = folders.start_words(node, str(Path(place) / "nodes" / node.label), out)[1:]
                log = ["--log", str(Path(place) / f"{node.label}.jsonl")]
                started.append(network.start(node.label, sys.executable, "-m", "fedge", *words, *log,
                                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))  # fmt: skip
            for process, node in zip(started, fleet.nodes, strict=True):
                _, said = process.communicate(timeout=300)
                if process.returncode:
                    raise RuntimeError(f"{node.label} ended with {process.returncode}: {said.strip()[-500:]}")
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        return seconds_of(Path(place) / f"{(fleet.cloud or fleet.edges[0]).label}.jsonl")


def seconds_of(log):
    """Read from a node's log when each round ended; return the seconds between."""
    rows = [json.loads(row) for row in log.read_text().splitlines()]
    ends = [datetime.fromisoformat(row["time"]).timestamp() for row in rows if row["event"] == "round"]
    return [later - earlier for earlier, later in itertools.pairwise(ends)]


def main(names):
    if (why := why_not()) is not None:
        sys.exit(f"not measured: {why}")
    print(f"{RUN['cells']} edges, {RUN['clients']} clients; seconds of a round, mean of {ROUNDS - 1} after the first\n")
    print(f"{'algorithm':10} {'R, Mbit/s':>9} {'bytes a round':>14} {'predicted':>10} {'measured':>10} {'off by':>7}")
    worst = 0.0
    for name in names:
        made = experiment(Config.of(run_of(name)))
        expected, size = predicted(made)
        found = mean(measured(name, made))
        off = found / expected - 1
        worst = max(worst, abs(off))
        rate = run_of(name)["uplink_bps"] / 1e6
        print(f"{name:10} {rate:9.2f} {size:14,.0f} {expected:8.3f} s {found:8.3f} s {off:+7.1%}", flush=True)
    sys.exit(int(worst > WITHIN))


if __name__ == "__main__":
    main(sys.argv[1:] or ALGORITHMS)
