"""A fleet file becomes a fleet, and every mistake in it one sentence that names the place."""

import tomllib
from pathlib import Path

import pytest

from fedge.errors import ConfigError, FleetError
from fedge.experiment.fleet_file import default_name, fleet_of, read_fleet, toml_of
from fedge.net.fleet import write_numbers
from fedge.net.names import CLOUD, MONITOR, OPERATOR, client, edge

EXAMPLE = Path(__file__).parents[2] / "examples/fleet.toml"
RUN = {"algorithm": "hierfavg", "clients": 6, "cells": 2}


def made(text="", **run):
    return fleet_of({"run": RUN | run, **tomllib.loads(text)}, "demo")


def addresses(fleet):
    return {str(node.names[0]): node.address for node in fleet.nodes if node.address}


def test_the_example_is_a_fleet_on_this_machine():
    fleet = read_fleet(EXAMPLE)
    assert fleet.name == "fleet"
    assert addresses(fleet) == {"cloud": "127.0.0.1:7400", "edge-0": "127.0.0.1:7401", "edge-1": "127.0.0.1:7402"}
    assert [node.label for node in fleet.hosts_of_clients] == ["clients-0-2", "clients-3-5"]


def test_clients_and_cells_are_enough_for_a_whole_tree():
    fleet = made(clients=20, cells=3)
    assert addresses(fleet) == {f"{n}": f"127.0.0.1:{7400 + i}" for i, n in enumerate([CLOUD, *map(edge, range(3))])}
    assert [len(node.names) for node in fleet.hosts_of_clients] == [3, 3, 3, 3, 3, 3, 2]  # at most 8 processes
    assert fleet.deadline == (2 * 4 * 600, 600)  # edge_rounds=4
    assert made("[fleet]\nper_process = 2\nport = 9000").at(client(5)).label == "clients-4-5"


def test_who_there_is_follows_from_the_algorithm():
    flat = made(algorithm="fedavg")
    assert (set(addresses(flat)), flat.edges) == ({"cloud"}, ())
    assert flat.dialled_by(flat.at(client(0))) == (flat.cloud,)
    gossip = made("[monitor]", algorithm="sdfeel", graph="path")
    assert set(addresses(gossip)) == {"edge-0", "edge-1", "monitor"}
    assert gossip.dialled_by(gossip.at(edge(0))) == (gossip.at(edge(1)), gossip.at(MONITOR))
    tree = made()
    assert tree.dialled_by(tree.at(edge(0))) == (tree.cloud,)
    assert tree.dialled_by(tree.at(client(0))) == tree.edges
    assert tree.dialled_by(tree.cloud) == ()


@pytest.mark.parametrize("label", ["cloud", "edge-1", "clients-0-2", "operator"])
def test_the_part_of_a_process_is_read_back_as_it_was_written(label, tmp_path):
    whole = read_fleet(EXAMPLE)
    part = whole.part_of(whole.labelled(label))
    (tmp_path / "fleet.toml").write_text(toml_of(part))
    assert read_fleet(tmp_path / "fleet.toml") == part
    assert {n.label for n in part.nodes} == {
        "cloud": {"cloud"},
        "edge-1": {"edge-1", "cloud"},
        "clients-0-2": {"clients-0-2", "edge-0", "edge-1"},
        "operator": {"cloud", "edge-0", "edge-1"},
    }[label]


def test_a_whole_file_is_read_back_as_it_was_written(tmp_path):
    text = (
        '[fleet]\nname = "site-3"\n[cloud]\naddress = "[::1]:7"\nlisten = "0.0.0.0:7"\n[[client]]\nclients = "5, 0-3"\n'
    )
    fleet = made(text + "[[client]]\nclients = 4\n[quorum]\nedge = 0.5", lr=0.1, data="fashion-mini", train_eval=True)
    (tmp_path / "x.toml").write_text(toml_of(fleet))
    again = read_fleet(tmp_path / "x.toml")
    assert set(again.at(client(5)).names) == set(fleet.at(client(5)).names) == {client(n) for n in (0, 1, 2, 3, 5)}
    assert (again.run, again.quorum, again.deadline, again.name) == (fleet.run, (1.0, 0.5), fleet.deadline, "site-3")
    assert again.cloud == fleet.cloud
    assert again.cloud.binds == "0.0.0.0:7"


def test_numbers_and_names_are_written_shortly():
    assert write_numbers([7, 0, 1, 2, 9]) == "0-2_7_9"
    assert [default_name(Path(n)) for n in ("A b_c.toml", "fleet.toml", "--.toml")] == ["a-b-c", "fleet", "fleet"]


def test_a_node_is_found_by_its_name_or_told_missing():
    fleet = made()
    assert fleet.labelled("edge-1") == fleet.at(edge(1))
    assert fleet.labelled("operator").names == (OPERATOR,)
    with pytest.raises(FleetError, match="does not name client 6"):
        fleet.labelled("client-6")
    with pytest.raises(FleetError, match="'edg' is no name of a node"):
        fleet.labelled("edg")


@pytest.mark.parametrize(("text", "said"), [
    ("[clod]", "has unknown key 'clod'; allowed: run, fleet, .*; did you mean 'cloud'?"),
    ("[cloud]\nadress = 'a:1'", r"\[cloud\] has unknown key 'adress'; allowed: address, listen; did you mean 'addr"),
    ("[[edge]]\nnumber = 0\nlocal = 1", r"\[\[edge\]\] #1 has unknown key 'local'; allowed: address, li"),
    ("[[edge]]\naddress = 'a:1'", r"\[\[edge\]\] #1 lacks number"),
    ("[cloud]\naddress = 'here'", r"\[cloud\] address = here cannot be: an address is written HOST:PORT"),
    ("[cloud]\naddress = 'here:99999'", "address = here:99999 cannot be"),
    ("[cloud]\naddress = '::1:7400'", "address = ::1:7400 cannot be"),
    ("[[edge]]\nnumber = 0\n[[edge]]\nnumber = 2", "number = 2 is none of cells=2, which are numbered from 0"),
    ("[[edge]]\nnumber = 0", "cells=2 needs as many edges; .* number = 1 is missing"),
    ("[[edge]]\nnumber = 0\n[[edge]]\nnumber = 0", "number = 0 stands there 2 times"),
    ("[cloud]\naddress = '127.0.0.1:7401'", "the cloud and edge 0 have one address, 127.0.0.1:7401"),
    ("[[client]]\nclients = '0-4'", "client 5 is named by no"),
    ("[[client]]\nclients = '0-3'\n[[client]]\nclients = '3-5'", "client 3 is named by 2"),
    ("[[client]]\nclients = '0-6'", "names client 6; clients=6 are numbered from 0"),
    ("[[client]]\nclients = '5-0'", r"\[\[client\]\] #1 clients = 5-0 cannot be: clients are written as"),
    ("[quorum]\nedge = 1.5", r"\[quorum\] edge = 1.5 cannot be: input should be less than or equal to 1"),
    ("[quorum]\nclient = 0.5", r"\[quorum\] has unknown key 'client'"),
    ("[deadline]\ncloud = 10", "cloud = 10 must be longer than edge = 600"),
    ("[deadline]\nclient = 10", r"\[deadline\] has unknown key 'client'"),
    ("[deadline]\nedge = '10'", r"\[deadline\] edge = 10 cannot be: input should be a valid number"),
    ("[fleet]\nname = 'My fleet'", "name = My fleet cannot be: a fleet's name has lower-case letters"),
    ("[fleet]\nport = 64999\n[run]\nclients = 1000\ncells = 900\nalgorithm='hierfavg'", "leaves too few ports"),
    ("[run]\nalgorithm = 'hierfavg'\nclint = 3", "unknown key 'clint'"),
    ("[run]\nalgorithm = 'sdfeel'\n[cloud]\naddress = 'a:1'", r"\[cloud\] has no meaning for sdfeel"),
    ("[run]\nalgorithm = 'fedavg'\n[[edge]]\nnumber = 0", r"\[\[edge\]\] has no meaning for fedavg"),
    ("[run]\nalgorithm = 'hierfavg'\npartition = 'natural'\ndata = 'x.npz'", "leaves clients to be counted"),
    ("cloud = 3", "cloud = 3 cannot be: "),
])  # fmt: skip
def test_a_mistake_gets_a_sentence_that_names_its_place(text, said):
    tables = tomllib.loads(text)
    with pytest.raises(ConfigError, match=said):
        fleet_of({"run": RUN} | tables, "demo")


def test_a_file_is_named_in_what_is_said_of_it(tmp_path):
    path = tmp_path / "fleet.toml"
    path.write_text("[cloud]\n")
    with pytest.raises(ConfigError, match=r"fleet.toml: a fleet file needs the table \[run\]"):
        read_fleet(path)
    with pytest.raises(ConfigError, match=r"cannot read the configuration .*nowhere.toml"):
        read_fleet(tmp_path / "nowhere.toml")
