"""`fedge fleet init` makes what is carried to the machines: nothing by halves, nothing over what is there."""

import stat
from pathlib import Path

import pytest

from fedge.cli.fleet import describe
from fedge.errors import FleetError
from fedge.experiment.fleet_file import fleet_of, read_fleet
from fedge.fleet.folders import default_folder, every_node, make_folders, renew, revoke
from fedge.fleet.temporary import Temporary
from fedge.fleet.up import carried
from fedge.net.identity import AUTHORITY_KEY, Authority, Credentials
from fedge.net.names import CLOUD, OPERATOR, client, edge

pytest.importorskip("cryptography")
EXAMPLE = read_fleet(Path(__file__).parents[2] / "examples/fleet.toml")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_each_node_has_a_folder_and_finds_in_it_all_it_needs(tmp_path):
    made = make_folders(EXAMPLE, tmp_path / "nodes")
    assert [folder.name for folder in made] == [
        "cloud", "edge-0", "edge-1", "clients-0-2", "clients-3-5", "operator",
    ]  # fmt: skip
    cloud = Credentials.load(tmp_path / "nodes/cloud")
    for folder, node in zip(made, every_node(EXAMPLE), strict=True):
        own = Credentials.load(folder)
        assert own.names == node.names == cloud.admit(own.certificate)
        assert read_fleet(folder / "fleet.toml") == EXAMPLE.part_of(node)
        assert (mode(folder), mode(folder / "identity.pem")) == (0o700, 0o600)
        assert not list(folder.glob("authority-key*"))  # which no node needs
    assert sorted(path.name for path in (tmp_path / "nodes").iterdir()) == sorted(
        [".gitignore", "authority", *(folder.name for folder in made)]
    )


def test_what_is_there_is_kept(tmp_path):
    make_folders(EXAMPLE, tmp_path / "nodes")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.pem")}
    with pytest.raises(FleetError, match="exists already and is kept; give another --out, or renew"):
        make_folders(EXAMPLE, tmp_path / "nodes")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.pem")} == before
    assert list(tmp_path.iterdir()) == [tmp_path / "nodes"]  # nothing half made lies about


def test_a_folder_that_cannot_be_made_whole_is_not_made(tmp_path, monkeypatch):
    monkeypatch.setattr("fedge.fleet.folders.toml_of", lambda fleet: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        make_folders(EXAMPLE, tmp_path / "nodes")
    assert not list(tmp_path.iterdir())


def test_nodes_are_revoked_and_renewed(tmp_path):
    make_folders(EXAMPLE, out := tmp_path / "nodes")
    lost, cloud = Credentials.load(out / "edge-1"), Credentials.load(out / "cloud")
    assert cloud.admit(lost.certificate) == (edge(1),)
    assert len(revoke(EXAMPLE, out, ["edge-1"])) == 6
    with pytest.raises(FleetError, match="edge 1 was revoked"):
        cloud.admit(lost.certificate)
    assert renew(EXAMPLE, out, ["edge-1"], days=30) == [out / "edge-1"]
    renewed = Credentials.load(out / "edge-1")
    assert renewed.key != lost.key
    assert cloud.admit(renewed.certificate) == (edge(1),)
    assert len(renew(EXAMPLE, out, ["all"])) == 6


def test_a_file_may_grow_and_shrink(tmp_path):
    run = {"algorithm": "hierfavg", "clients": 3, "cells": 1}
    make_folders(fleet_of({"run": run}, "site"), out := tmp_path / "nodes")
    more = fleet_of({"run": run | {"clients": 4}}, "site")
    assert renew(more, out, ["client-3"]) == [out / "client-3"]
    assert Credentials.load(out / "client-3").names == (client(3),)
    with pytest.raises(FleetError, match="does not name client 4"):
        renew(more, out, ["client-4"])
    gone, cloud = Credentials.load(out / "client-3"), Credentials.load(out / "cloud")
    revoke(fleet_of({"run": run}, "site"), out, ["client-3"])  # which the file no longer names
    with pytest.raises(FleetError, match="client 3 was revoked"):
        cloud.admit(gone.certificate)
    with pytest.raises(FleetError, match="is of 'other'"):
        renew(fleet_of({"run": run}, "other"), out, ["cloud"])
    with pytest.raises(FleetError, match=r"authority-key.pem is missing; make the folder with"):
        renew(more, tmp_path / "elsewhere", ["cloud"])


def test_the_key_of_the_authority_may_lie_elsewhere(tmp_path):
    make_folders(EXAMPLE, out := tmp_path / "nodes")
    (out / "authority").rename(tmp_path / "safe")
    assert Credentials.load(out / "cloud").names == (CLOUD,)
    assert Authority.load(tmp_path / "safe").issue(OPERATOR).names == (OPERATOR,)


def test_an_authority_for_one_time_is_not_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with carried(EXAMPLE, None) as (place, left):
        assert Credentials.load(place / "cloud").names == (CLOUD,)
        assert not list(place.parent.glob(f"**/{AUTHORITY_KEY}"))
        Temporary.of(left).remove()  # as who was started does, when this process was killed
        assert not place.parent.exists()


def test_nobody_removes_a_folder_of_the_users(tmp_path):
    made = tmp_path / "fedge-fleet-mine"
    make_folders(EXAMPLE, made / "nodes")
    for mark in ("", "token"):
        (made / ".temporary").write_text(mark)
        (tmp_path / ".temporary").write_text(mark)
        with carried(EXAMPLE, made / "nodes") as (place, left):
            assert (place, left) == (made / "nodes", "")
        for words in (left, f":{made}", f"other:{made}", f"token:{tmp_path}"):
            Temporary.of(words).remove()
    assert Credentials.load(made / "nodes/cloud").names == (CLOUD,)


def test_what_is_said_of_each_folder():
    assert default_folder(EXAMPLE) == Path("fleet-nodes")
    assert describe(EXAMPLE).splitlines()[1] == (
        "  edge-0       listens at 127.0.0.1:7401; dials cloud at 127.0.0.1:7400"
    )
