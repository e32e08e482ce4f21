"""Measure how long a fleet's nodes take until they are ready, beside importing JAX: python benchmarks/fleet_start.py

A node is ready when it has built its experiment, listens if anybody dials it, and greets its parent, whose place this
script takes. JAX is ready when `import jax` has come back. Every kind is started as a process of its own, in turns; the
ratio to JAX in the same run is what counts. Bytecode is there already, as after any installation: without it
(PYTHONDONTWRITEBYTECODE) Python compiles the sources at each start.
"""

from __future__ import annotations

import os
import queue
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fedge.experiment.build import experiment
from fedge.experiment.config import Config
from fedge.experiment.fleet_file import read_fleet
from fedge.fleet import folders
from fedge.net.hub import Hub
from fedge.net.identity import Credentials
from fedge.net.tally import Tally

TURNS = 15
PORT = 7640
FLEET = f"""[run]
algorithm = "hierfavg"
clients = 4
cells = 2
[fleet]
port = {PORT}
per_process = 1
"""
IMPORTS = {"import jax": "import jax", "import jax, flax.nnx": "import jax, flax.nnx"}


class Parent:
    """This greets whoever dials, and notes when."""

    def __init__(self, nodes: Path, label: str, address: str) -> None:
        self.greeted = queue.SimpleQueue[float]()
        own = Credentials.load(nodes / label)
        self.hub = Hub(own.names[0], self._vet, Tally(), own)
        self.hub.listen(address)

    def _vet(self, names: object, facts: object) -> dict[str, object]:
        self.greeted.put(time.perf_counter())
        return {}


def started(words: list[str], **given: object) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, *words], stderr=subprocess.DEVNULL, text=True, **given)  # type: ignore


def importing(code: str) -> float:
    """Return the seconds until something is imported."""
    began = time.perf_counter()
    with started(["-c", f"{code}\nprint(flush=True)"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        return time.perf_counter() - began


def greeting(role: str, folder: Path, parent: Parent) -> float:
    """Return the seconds until a node greets its parent."""
    began = time.perf_counter()
    process = started(["-m", "fedge", "fleet", role, str(folder)], stdout=subprocess.DEVNULL)
    try:
        return parent.greeted.get(timeout=120) - began
    finally:
        process.kill()
        process.wait()


def text(seconds: list[float], jax: list[float]) -> str:
    ratios = sorted(own / beside for own, beside in zip(seconds, jax, strict=True))
    return f"{statistics.median(seconds):.2f} s | {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


def main(turns: int = TURNS) -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as place:
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(place) / "bytecode")
        file, nodes = Path(place) / "fleet.toml", Path(place) / "nodes"
        file.write_text(FLEET)
        fleet = read_fleet(file)
        folders.make_folders(fleet, nodes)
        of_edge_1 = [*experiment(Config.of(fleet.run)).topology.cell].index(1)
        parents = {label: Parent(nodes, label, fleet.labelled(label).address or "") for label in ("cloud", "edge-1")}
        works = {name: lambda code=code: importing(code) for name, code in IMPORTS.items()}
        works["fedge fleet client"] = lambda: greeting("client", nodes / f"client-{of_edge_1}", parents["edge-1"])
        works["fedge fleet edge"] = lambda: greeting("edge", nodes / "edge-0", parents["cloud"])
        found = {name: list[float]() for name in works}
        for turn in range(turns + 1):
            for name, work in works.items():
                seconds = work()
                if turn:  # the first leaves bytecode and compiled programs behind
                    found[name].append(seconds)
        print("| | median | by `import jax`, median of turns (range) |\n|---|---|---|")
        for name, seconds in found.items():
            print(f"| `{name}` | {text(seconds, found['import jax'])} |")
        for parent in parents.values():
            parent.hub.stop("done")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
