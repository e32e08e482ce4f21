"""Manifests are what their platforms read, by the platforms' own schemas, and fit together."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from fedge.cli import app
from fedge.cli.fleet import IMAGE
from fedge.errors import ConfigError
from fedge.experiment.fleet_file import fleet_of, read_fleet
from fedge.fleet.manifests import PLATFORMS, emit
from fedge.fleet.yaml import yaml_of

EXAMPLE = Path(__file__).parents[2] / "examples/fleet.toml"
RUN = {"clients": 5, "cells": 2}
FLEETS = {
    "hierfavg": read_fleet(EXAMPLE),
    "sdfeel": fleet_of({"run": RUN | {"algorithm": "sdfeel"}, "monitor": {}}, "gossip"),
    "fedavg": fleet_of(
        {"run": RUN | {"algorithm": "fedavg"}, "client": [{"clients": "0-2, 4"}, {"clients": 3}]}, "flat"
    ),
}
TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\x85\u2028\u2029\ufeff")
)
PLAIN = (
    TEXT | st.integers() | st.booleans() | st.none() | st.sampled_from(["yes", "No", "a: b", "- x", "1e3", "a\nb\n"])
)
NESTED = st.recursive(PLAIN, lambda of: st.lists(of, max_size=3) | st.dictionaries(TEXT, of, max_size=3))


@settings(max_examples=40)
@given(st.dictionaries(TEXT, NESTED, max_size=3))
def test_yaml_is_read_back_as_it_was_written(value):
    assert (reference.safe_load(yaml_of(value)) or {}) == value


@pytest.fixture(params=FLEETS)
def fleet(request):
    return FLEETS[request.param]


def test_kubernetes_takes_every_resource(fleet, tmp_path):
    validate = pytest.importorskip("kubernetes_validate").validate
    (path,) = emit(fleet, "kubernetes", tmp_path, IMAGE, tmp_path / "nodes")
    every = list(reference.safe_load_all(path.read_text()))
    for thing in every:
        validate(thing, "1.33", strict=True)
    kinds = [thing["kind"] for thing in every]
    assert kinds.count("Job") == kinds.count("ConfigMap") == len(fleet.nodes)
    assert kinds.count("Service") == sum(node.address is not None for node in fleet.nodes)
    ports = {
        f"{thing['metadata']['name']}:{thing['spec']['ports'][0]['port']}"
        for thing in every
        if thing["kind"] == "Service"
    }
    dialled = set()
    for thing in every:
        if thing["kind"] == "ConfigMap":  # whom a node dials is reached by the name of a service, and by its port
            (tmp_path / "part.toml").write_text(thing["data"]["fleet.toml"])
            part = read_fleet(tmp_path / "part.toml")
            me = part.labelled(part.node)
            assert me.binds is None or me.binds.startswith("0.0.0.0:")
            dialled |= {other.address for other in part.dialled_by(me)}
    assert dialled <= ports
    assert {address.partition(":")[0] for address in dialled} >= {f"{fleet.name}-{node.label}" for node in fleet.edges}
    jobs = {thing["metadata"]["name"]: thing["spec"]["template"] for thing in every if thing["kind"] == "Job"}
    for name, template in jobs.items():
        assert template["metadata"]["labels"]["app"] == name
        projected = template["spec"]["volumes"][0]["projected"]["sources"]
        assert [next(iter(s.values()))["name"] for s in projected] == [name, name, f"{fleet.name}-revoked"]
    assert "PRIVATE KEY" not in path.read_text()


def test_names_that_kubernetes_cannot_hold_are_refused(tmp_path):
    long = fleet_of({"run": {"algorithm": "hierfavg", "clients": 40, "cells": 1}, "client": [
        {"clients": ", ".join(map(str, range(0, 40, 2)))}, {"clients": ", ".join(map(str, range(1, 40, 2)))}
    ]}, "a" * 40)  # fmt: skip
    with pytest.raises(ConfigError, match="too long for a name in Kubernetes, by"):
        emit(long, "kubernetes", tmp_path, IMAGE, tmp_path)


def test_compose_takes_every_service(fleet, tmp_path):
    spec = pytest.importorskip("compose_spec")
    written = {path.name: path for path in emit(fleet, "compose", tmp_path / "out", IMAGE, tmp_path / "nodes")}
    text = written["compose.yaml"].read_text()
    assert set(spec.PyCompose.from_yaml(text).to_dict()["services"]) == {node.label for node in fleet.nodes}
    whole = reference.safe_load(text)
    for node in fleet.nodes:
        part = read_fleet(written[f"{node.label}.toml"])
        assert part.node == node.label
        for other in part.dialled_by(part.labelled(node.label)):
            assert other.address.partition(":")[0] in whole["services"]
        mounts = whole["services"][node.label]["volumes"]
        assert mounts[0] == f"../nodes/{node.label}:/fleet:ro"
        named = {mount.partition(":")[0] for mount in mounts if not mount.startswith(".")}
        assert named <= whole["volumes"].keys()


def test_what_is_no_compose_file_would_be_found_out():
    spec = pytest.importorskip("compose_spec")
    with pytest.raises(ValueError, match="imag"):
        spec.PyCompose.from_yaml('services: {a: {imag: "x"}}')


def test_systemd_takes_every_unit(tmp_path):
    if (verify := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd-analyze is not installed: no unit was verified")
    fleet = FLEETS["sdfeel"]
    units = emit(fleet, "systemd", tmp_path, IMAGE, tmp_path / "nodes")
    assert [unit.name for unit in units] == [f"fedge-gossip-{node.label}.service" for node in fleet.nodes]
    done = subprocess.run([verify, "verify", "--man=no", *units], capture_output=True, text=True, timeout=120)
    assert [row for row in (done.stdout + done.stderr).splitlines() if str(tmp_path) in row or "fedge" in row] == []
    wrong = tmp_path / "wrong.service"
    wrong.write_text(units[0].read_text().replace("ProtectHome=yes", "ProtectHouse=yes"))
    assert (
        "ProtectHouse" in subprocess.run([verify, "verify", "--man=no", wrong], capture_output=True, text=True).stderr
    )


def test_what_keeps_a_model_has_a_place_for_it(tmp_path):
    for name, keepers in [("hierfavg", {"cloud"}), ("sdfeel", {"edge-0", "edge-1", "monitor"}), ("fedavg", {"cloud"})]:
        (path,) = (p for p in emit(FLEETS[name], "compose", tmp_path / name, IMAGE, tmp_path) if p.suffix == ".yaml")
        services = reference.safe_load(path.read_text())["services"]
        assert {label for label, one in services.items() if "--out" in one["command"]} == keepers


def test_the_commands_of_manifests_are_commands(fleet, tmp_path):
    (path,) = (p for p in emit(fleet, "compose", tmp_path, IMAGE, tmp_path) if p.suffix == ".yaml")
    for service in reference.safe_load(path.read_text())["services"].values():
        done = CliRunner().invoke(app, service["command"][1:])
        assert "cannot read the configuration /fleet/fleet.toml" in done.stderr  # its words were understood


def test_platforms_have_names():
    assert set(PLATFORMS) == {"kubernetes", "compose", "systemd"}
