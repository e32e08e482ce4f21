"""FedAvg over a network, four clients and a hub: fedge beside Flower and NVIDIA FLARE, seconds and bytes of a round.

    python benchmarks/fleet_peers.py [fedge flower flare]

Each process has a network namespace of its own and an unlimited veth link to the hub; a link's counters in the hub's
namespace, both directions and headers included, are what went over the wire, whoever sent it. Processes of one machine
that talk among themselves are not counted. All use TLS, a model of 0.95 MB (784-300-10 in float32) and one step on ten
samples a round: fedge's in JAX, the others' the same in NumPy (`peers/mlp_step.py`). A round lasts from the end of the
one before to its own; the first, which starts processes or compiles, is left out. It needs Linux and root.

    python3.11 -m venv /tmp/venv-flower-net && /tmp/venv-flower-net/bin/pip install -r benchmarks/peers/flower_net.txt
    python3.11 -m venv /tmp/venv-flare && /tmp/venv-flare/bin/pip install -r benchmarks/peers/flare_net.txt
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.net.shaped import Network, why_not

from fedge.experiment.fleet_file import fleet_of
from fedge.fleet import folders
from fedge.net.identity import Authority
from fedge.net.names import CLOUD

CLIENTS, ROUNDS, MODEL = 4, 6, 954_040
LIMIT = 280.0  # seconds for each of them
PEERS = Path(__file__).resolve().parent / "peers"
FLOWER, FLARE = (Path(os.environ.get(key, f"/tmp/venv-{name}")) for key, name in
                 (("FLOWER_ENV", "flower-net"), ("FLARE_ENV", "flare")))  # fmt: skip
COUNT = """
import sys, time
while True:
    rows = [row.split() for row in open("/proc/net/dev").read().splitlines()[2:]]
    print(time.time(), sum(int(row[1]) + int(row[9]) for row in rows if row[0] != "lo:"), flush=True)
    time.sleep(0.02)
"""


class Machines:
    """These are the hub's machine and the clients', with whatever was started on them."""

    def __init__(self, network: Network, place: Path) -> None:
        self.network, self.place = network, place
        self.labels = ["hub", *(f"site-{n}" for n in range(1, CLIENTS + 1))]
        for label in self.labels:
            network.namespace(label)
        for label in self.labels[1:]:
            network.connect(label, "hub", None)
        self._running: list[subprocess.Popen[bytes]] = []
        self.start("hub", sys.executable, "-c", COUNT, log="bytes")

    def at(self, label: str) -> str:
        return str(self.network.address(label))

    def start(self, label: str, *words: object, log: str, **given: object) -> subprocess.Popen[bytes]:
        """Start a process; it and whatever it starts end with the block."""
        with (self.place / log).open("wb") as file:
            process = self.network.start(label, *map(str, words), stdout=file, stderr=subprocess.STDOUT,
                                         stdin=subprocess.DEVNULL, start_new_session=True, **given)  # fmt: skip
        self._running.append(process)
        return process

    def said(self, log: str) -> str:
        path = self.place / log
        return path.read_text(errors="replace") if path.exists() else ""

    def wait(self, done: object, what: str, end: float) -> None:
        """Wait until something is so."""
        while not done():  # type: ignore[operator]
            if time.monotonic() > end:
                raise TimeoutError(f"{what} took more than {LIMIT:.0f} s")
            time.sleep(0.2)

    def close(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self._running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            time.sleep(1.0)
        for process in self._running:
            process.wait()

    def bytes_at(self, moments: list[float]) -> list[int]:
        rows = [row.split() for row in self.said("bytes").splitlines()[:-1]]
        times, counts = [float(row[0]) for row in rows], [int(row[1]) for row in rows]
        return [counts[min(bisect_left(times, moment), len(counts) - 1)] for moment in moments]


@contextlib.contextmanager
def machines() -> Iterator[Machines]:
    with tempfile.TemporaryDirectory(prefix="fedge-peers-") as place, Network() as network:
        found = Machines(network, Path(place))
        try:
            yield found
        finally:
            found.close()


def fedge(on: Machines, end: float) -> list[float]:
    run = {"algorithm": "fedavg", "clients": CLIENTS, "rounds": ROUNDS, "local_steps": 1, "batch": 10,
           "data": "fashion-mini", "eval_every": ROUNDS, "checkpoint_every": 0}  # fmt: skip
    tables = {"run": run, "fleet": {"per_process": 1}, "cloud": {"address": f"{on.at('hub')}:7400"}}
    fleet, nodes = fleet_of(tables, "peers"), on.place / "nodes"
    folders.make_folders(fleet, nodes)
    clients = [node for node in fleet.nodes if node.role == "client"]
    for label, node in zip(on.labels, [fleet.cloud, *clients], strict=True):
        assert node is not None
        out = str(on.place / "run") if node.role == "cloud" else None
        words = folders.start_words(node, str(nodes / node.label), out)[1:]
        on.start(
            label, sys.executable, "-m", "fedge", *words, "--log", on.place / f"{label}.jsonl", log=f"{label}.said"
        )

    def ends() -> list[float]:
        rows = [json.loads(row) for row in on.said("hub.jsonl").splitlines()]
        return [datetime.fromisoformat(row["time"]).timestamp() for row in rows if row["event"] == "round"]

    on.wait(lambda: len(ends()) == ROUNDS, "fedge", end)
    return ends()


def flower(on: Machines, end: float) -> list[float]:
    app, home, certificates = (on.place / name for name in ("app", "home", "certificates"))
    (app / "peer").mkdir(parents=True)
    home.mkdir(), certificates.mkdir()
    for name in ("flower_net.py", "mlp_step.py"):
        shutil.copy(PEERS / name, app / "peer" / name)
    (app / "peer" / "__init__.py").touch()
    (app / "pyproject.toml").write_text(
        '[project]\nname = "peer"\nversion = "1.0.0"\ndescription = "FedAvg"\nlicense = "MIT"\ndependencies = []\n'
        '[tool.flwr.app]\npublisher = "fedge"\n[tool.flwr.app.components]\nserverapp = "peer.flower_net:server"\n'
        f'clientapp = "peer.flower_net:client"\n[tool.flwr.app.config]\nrounds = {ROUNDS}\nclients = {CLIENTS}\n'
        f'ends = "{on.place / "ends"}"\n'
    )
    own = Authority.create("peers").issue(CLOUD, [on.at("hub"), "127.0.0.1"])
    for name, content in (("cert", own.certificate), ("key", own.key), ("ca", own.authority)):
        (certificates / f"{name}.pem").write_bytes(content)
    serving = [word for key, name in (("certfile", "cert"), ("keyfile", "key"), ("ca-certfile", "ca"))
               for word in (f"--ssl-{key}", certificates / f"{name}.pem")]  # fmt: skip
    ca, hub = certificates / "ca.pem", f"{on.at('hub')}:9393"
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "{hub}"\nroot-certificates = "{ca}"\n'
    )
    programs = FLOWER / "bin"
    outside = {"PYTHONPATH", "JAX_PLATFORMS"}
    given = {"env": {key: value for key, value in os.environ.items() if key not in outside} | {
        "FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "PATH": f"{programs}:{os.environ['PATH']}"}}  # fmt: skip
    on.start("hub", programs / "flower-superlink", *serving, "--disable-runtime-dependency-installation",
             "--host", on.at("hub"), "--port", 9393, log="superlink", **given)  # fmt: skip
    on.wait(lambda: "Uvicorn running" in on.said("superlink"), "Flower's SuperLink", end)
    for n, label in enumerate(on.labels[1:]):
        on.start(label, programs / "flower-supernode", "--root-certificates", ca, "--superlink", hub, *serving,
                 "--node-config", f"partition-id={n}", log=label, **given)  # fmt: skip
    on.wait(lambda: on.said("superlink").count("Activated node") == CLIENTS, "Flower's SuperNodes", end)
    on.start("hub", programs / "flwr", "run", app, "here", log="submitted", **given)
    on.wait(lambda: len(on.said("ends").split()) == ROUNDS, "Flower", end)
    return [float(word) for word in on.said("ends").split()]


def flare(on: Machines, end: float) -> list[float]:
    """Provision a project, start its server and clients as its own scripts do, and submit the job."""
    project = on.place / "project.yml"
    sites = "".join(f"  - {{name: {label}, type: client, org: peers}}\n" for label in on.labels[1:])
    project.write_text(
        "api_version: 3\nname: peers\nparticipants:\n  - {name: hub, type: server, org: peers, fed_learn_port: 8002}\n"
        f"{sites}  - {{name: admin@nvidia.com, type: admin, org: peers, role: project_admin}}\nbuilders:\n"
        "  - path: nvflare.lighter.impl.workspace.WorkspaceBuilder\n    args: {template_file: [master_template.yml]}\n"
        "  - path: nvflare.lighter.impl.static_file.StaticFileBuilder\n    args: {config_folder: config}\n"
        "  - path: nvflare.lighter.impl.cert.CertBuilder\n  - path: nvflare.lighter.impl.signature.SignatureBuilder\n"
    )
    python, outside = FLARE / "bin" / "python", {"PYTHONPATH", "JAX_PLATFORMS"}
    environment = {key: value for key, value in os.environ.items() if key not in outside}
    environment |= {"PATH": f"{FLARE / 'bin'}:{os.environ['PATH']}", "HOME": str(on.place)}
    given = {"env": environment, "cwd": str(on.place)}
    subprocess.run([FLARE / "bin" / "nvflare", "provision", "-p", project, "-w", on.place / "kits", "--force"],
                   check=True, capture_output=True, timeout=60, **given)  # fmt: skip
    kits = on.place / "kits" / "peers" / "prod_00"
    with named(on, "hub"):
        for label in on.labels:
            kind = "server" if label == "hub" else "client"
            module = f"nvflare.private.fed.app.{kind}.{kind}_train"
            on.start(label, python, "-u", "-m", module, "-m", kits / label, "-s",
                     f"fed_{kind}.json", "--set", "secure_train=true", f"uid={label}", "org=peers",
                     "config_folder=config", log=label, **given)  # fmt: skip
        words = ["submit", kits / "admin@nvidia.com", on.place, ROUNDS, CLIENTS]
        while "job " not in on.said("submitted"):  # the server may not be there yet
            process = on.start("hub", python, PEERS / "flare_net.py", *words, log="submitted", **given)
            on.wait(lambda process=process: process.poll() is not None, "FLARE's server", end)

        def ends() -> list[float]:
            """Read from its log when the server had every client's result."""
            said = "\n".join(path.read_text(errors="replace") for path in (kits / "hub").rglob("log.txt"))
            found = re.findall(rf"^(\S+ \S+) .*Aggregated {CLIENTS}/{CLIENTS} results", said, re.MULTILINE)
            return sorted({datetime.strptime(each, "%Y-%m-%d %H:%M:%S,%f").timestamp() for each in found})

        on.wait(lambda: len(ends()) == ROUNDS, "FLARE", end)
        return ends()


@contextlib.contextmanager
def named(on: Machines, label: str) -> Iterator[None]:
    """Let machines know another one by its name, as /etc/hosts would."""
    folders = [Path("/etc/netns") / on.network.namespace(each) for each in on.labels]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n{on.at(label)} {label}\n")
    try:
        yield
    finally:
        for folder in folders:
            shutil.rmtree(folder)


def main(names: list[str]) -> None:
    if (why := why_not()) is not None:
        sys.exit(f"not measured: {why}")
    print(f"FedAvg, {CLIENTS} clients, {ROUNDS} rounds, model of {MODEL:,} bytes; {2 * CLIENTS * MODEL:,} bytes of "
          "tensors a round\n\n| | seconds of a round, median (range) | bytes on the wire a round | by the tensors' |\n"
          "|---|---|---|---|")  # fmt: skip
    for name in names:
        with machines() as on:
            ends = {"fedge": fedge, "flower": flower, "flare": flare}[name](on, time.monotonic() + LIMIT)
            counted = on.bytes_at(ends)
        took = [later - earlier for earlier, later in pairwise(ends)]
        size = (counted[-1] - counted[0]) / (len(ends) - 1)
        print(f"| {name} | {median(took):.3f} ({min(took):.3f} to {max(took):.3f}) | {size:,.0f} | "
              f"{size / (2 * CLIENTS * MODEL):.3f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:] or ["fedge", "flower", "flare"])
