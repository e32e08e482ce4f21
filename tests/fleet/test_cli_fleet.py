"""The commands of a fleet, as words on a command line."""

import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedge.cli import app, fleet_roles
from fedge.errors import StoppedError
from fedge.fleet import nodes
from fedge.net.identity import Credentials
from tests.net.test_status import BUSY, telling

pytest.importorskip("cryptography")
EXAMPLE = str(Path(__file__).parents[2] / "examples/fleet.toml")


def call(*words):
    return CliRunner().invoke(app, ["fleet", *words])


def test_init_says_what_it_made_and_refuses_to_make_it_twice(tmp_path):
    out = str(tmp_path / "nodes")
    made = call("init", EXAMPLE, "--out", out)
    assert made.exit_code == 0
    for expected in (
        "6 folders in",
        "edge-0       listens at 127.0.0.1:7401; dials cloud",
        "authority signs certificates",
    ):
        assert expected in made.stdout
    again = call("init", EXAMPLE, "--out", out)
    assert (again.exit_code, again.stdout) == (6, "")
    assert again.stderr.startswith(f"fedge: {out} exists already and is kept")
    revoked = call("init", EXAMPLE, "--out", out, "--revoke", "edge-1")
    assert "revoked what was issued to edge-1; the list is in 6 folders" in revoked.stdout
    assert "valid until" in call("init", EXAMPLE, "--out", out, "--renew", "edge-1").stdout
    both = call("init", EXAMPLE, "--out", out, "--renew", "cloud", "--revoke", "cloud")
    assert (both.exit_code, both.stderr.count("\n")) == (2, 1)


def test_emit_writes_for_one_platform(tmp_path):
    done = call("emit", EXAMPLE, "--systemd", "--out", str(tmp_path / "units"))
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == 5
    assert (tmp_path / "units/fedge-fleet-edge-1.service").exists()
    for words in ((), ("--systemd", "--compose")):
        none = call("emit", EXAMPLE, *words)
        assert (none.exit_code, none.stderr.count("give one of: --kubernetes, --compose, --systemd")) == (2, 1)


def test_status_asks_every_node_and_shows_who_does_not_answer(tmp_path):
    file, nodes = tmp_path / "fleet.toml", str(tmp_path / "nodes")
    file.write_text(
        Path(EXAMPLE).read_text().replace(":7400", ":1").replace(":7401", ":2").replace(":7402", ":3")
    )  # where nobody listens
    assert call("init", str(file), "--out", nodes).exit_code == 0
    nobody = call("status", str(file), "--nodes", nodes)
    assert nobody.exit_code == 6
    assert (
        "no node of fleet 'fleet' answers (cloud: does not answer at 127.0.0.1:1 (Connection refused))" in nobody.stderr
    )
    with telling(Credentials.load(tmp_path / "nodes/cloud"), BUSY) as address:
        file.write_text(file.read_text().replace('127.0.0.1:1"', f'{address}"'))
        told = call("status", str(file), "--nodes", nodes)
        machine = call("status", str(file), "--nodes", nodes, "--format", "json")
    assert told.exit_code == 0
    assert told.stdout.splitlines() == [
        "fleet 'fleet': 1 of 3 answer",
        "  cloud   round 3/5, 2 edges connected, 1.50 s a round, 2 answers missing, accuracy 75.0%, loss 0.5000",
        "  edge-0  does not answer at 127.0.0.1:2 (Connection refused)",
        "  edge-1  does not answer at 127.0.0.1:3 (Connection refused)",
        "  cloud to edge: 1.5 kB of tensors, 30 bytes of framing",
        "  edge to cloud: 7 bytes of tensors, 1 bytes of framing",
    ]
    assert json.loads(machine.stdout)["cloud"]["scores"] == {"accuracy": 0.75, "loss": 0.5}
    assert json.loads(machine.stdout)["edge-1"]["problem"].startswith("does not answer")


def test_status_needs_the_operators_folder(tmp_path):
    done = call("status", EXAMPLE, "--nodes", str(tmp_path))
    assert (done.exit_code, done.stderr.count("identity.pem is missing; make the folder with")) == (6, 1)


def test_up_refuses_an_address_that_is_taken_before_it_starts_anything(tmp_path, free_port):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file = tmp_path / "fleet.toml"
        edges = f"""[[edge]]\nnumber = 0\naddress = "127.0.0.1:{port}"\n[[edge]]\nnumber = 1\n"""
        file.write_text(
            f"""[run]\nalgorithm = "sdfeel"\nclients = 2\ncells = 2\n{edges}[fleet]\nport = {free_port}\n"""
        )
        done = call("up", str(file), "--out", str(tmp_path / "run"))
    assert done.exit_code == 6
    assert f"edge 0 cannot listen at 127.0.0.1:{port} (Address already in use" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_leader_that_was_stopped_says_how_it_goes_on(tmp_path, monkeypatch):
    assert call("init", EXAMPLE, "--out", str(tmp_path / "nodes")).exit_code == 0

    def lead(*given, listener, **named):
        listener.folder = tmp_path / "run"
        raise StoppedError("stopped after round 3 of 9; continue with: fedge run --resume run", 15)

    monkeypatch.setattr(nodes, "lead", lead)
    monkeypatch.setattr(fleet_roles, "few_arenas", lambda: None)
    done = call("cloud", str(tmp_path / "nodes/cloud"))
    assert done.exit_code == 143
    words = f"fedge fleet cloud {tmp_path}/nodes/cloud --out {tmp_path}/run"
    assert done.stderr.endswith(f"fedge: stopped after round 3 of 9; continue with: {words}\n")
