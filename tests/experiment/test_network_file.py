"""A network is read from a file or a folder, sets what it says, and is refused in one sentence where it cannot be."""

import json

import pytest

from fedge.cost.network import Both
from fedge.errors import ConfigError, RunError
from fedge.experiment.build import experiment
from fedge.experiment.config import Config
from fedge.experiment.network_file import read_network
from fedge.runner.run import run

GOOD = """
[backhaul]
up_bps = 4e6
[[edges]]
name = "a"
cpu_hz = 4e9
up_bps = 10e6
[[edges]]
name = "b"
backhaul_up_bps = 1e6
[[clients]]
name = "x"
cell = "a"
count = 3
cpu_hz = 1e9
up_bps = 5e6
down_bps = 6e6
memory_mb = 64
[[clients]]
name = "y"
cell = "b"
step_seconds = 0.01
up_bps = 2e6
repeat = 120
[[trace]]
client = "y"
on = 0
off = 100
[[links]]
from = "a"
to = "b"
bps = 1e7
back_bps = 2e7
"""
KEYS = {"algorithm": "hierfavg", "rounds": 2, "local_steps": 1, "edge_rounds": 1, "partition": "iid"}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "net.toml"
    path.write_text(GOOD)
    return path


def test_a_file_and_a_folder_say_the_same(file, tmp_path):
    folder = tmp_path / "net"
    folder.mkdir()
    (folder / "edges.csv").write_text("# made by hand\nname,cpu_hz,up_bps,backhaul_up_bps\na,4e9,10e6,\nb,,,1e6\n")
    (folder / "clients.csv").write_text("name,cell,count,cpu_hz,step_seconds,up_bps,down_bps,memory_mb,repeat\n"
                                        "x,a,3,1e9,,5e6,6e6,64,\ny,b,,,0.01,2e6,,,120\n")  # fmt: skip
    (folder / "links.csv").write_text("from, to, bps, back_bps\na, b, 1e7, 2e7\n")
    (folder / "trace.csv").write_text("client,on,off\ny,0,100\n")
    (folder / "backhaul.csv").write_text("up_bps\n4e6\n")
    one = read_network(file)
    assert read_network(folder) == one
    assert [client.name for client in one.clients] == ["x-1", "x-2", "x-3", "y"]
    assert one.clients[0].rate == Both(5e6, 6e6)
    assert one.clients[3].rate == Both(2e6, 2e6)
    assert one.clients[3].on.share == pytest.approx(100 / 120)
    assert (one.clients[0].memory, one.clients[3].memory) == (64e6, float("inf"))
    assert one.links == {(0, 1): 1e7, (1, 0): 2e7}
    assert one.step_seconds(100, 20).tolist() == [20 * 100 / 1e9] * 3 + [0.01]


def test_it_says_clients_cells_and_links(file):
    made = experiment(Config.of(KEYS | {"algorithm": "sdfeel", "network": str(file)}))
    assert (made.config.clients, made.config.cells, made.config.assign) == (4, 2, "network")
    assert made.config.declared["graph"] == "0-1"
    assert made.config.downlink
    assert made.topology.cell.tolist() == [0, 0, 0, 1]
    assert Config.of(made.config.model_dump()) == made.config


BAD = [
    ('name = "b"', 'name = "a"', "two edges named 'a'"),
    ('cell = "b"', 'cell = "a"', "edge 'b' of network net has no clients; give it some or leave it out"),
    ('cell = "b"', 'cell = "bb"', "client 'y' of network net is in cell 'bb', and there is no edge of that name"),
    ('client = "y"', 'client = "yy"', "has a trace of 'yy', which is none of its clients; did you mean 'y'?"),
    ("up_bps = 5e6", "up_bps = 0", "client 'x' of network net has up_bps=0; give a number from 0.001 to 1e+18"),
    ("up_bps = 5e6", "up_bps = -1", "up_bps=-1; give a number"),
    ("up_bps = 5e6", "up_bps = true", "up_bps=True; give a number"),
    ("up_bps = 5e6", "", "client 'x' of network net has no up_bps; give its rate"),
    ("up_bps = 5e6", "upbps = 5e6", "has an unknown key 'upbps'; allowed: name, cell,"),
    ("count = 3", "count = 2.5", "has count=2.5; give an integer"),
    ("step_seconds = 0.01", "", "client 'y' of network net has neither cpu_hz nor step_seconds"),
    ("step_seconds = 0.01", "step_seconds = 0.01\ncpu_hz = 1e9", "has both cpu_hz and step_seconds"),
    ("step_seconds = 0.01", "step_seconds = 0.01\ncycles_per_bit = 9", "cycles_per_bit without cpu_hz"),
    ("repeat = 120", "", "client 'y' is known until 100 s only"),
    ("repeat = 120", "repeat = 120\non_seconds = 5", "and a trace too; keep one of both"),
    ("memory_mb = 64", "repeat = 5", "client 'x' of network net has repeat=5 and no trace to repeat"),
    ("memory_mb = 64", "on_seconds = 5", "has one of on_seconds and off_seconds; give both"),
    ("back_bps = 2e7", '[[links]]\nfrom = "b"\nto = "a"\nbps = 1', "between 'b' and 'a' is given twice"),
    ('to = "b"', 'to = "c"', "a link of network net ends at 'c', and there is no edge of that name"),
    ("[backhaul]", "[backhaull]", "entry 'backhaull'; allowed: clients, edges, links, trace, backhaul; did you"),
    ("[[clients]]", "[[nobody]]", "unknown entry 'nobody'"),
    ("[backhaul]", "[[backhaul]]", "has a backhaul that is no table"),
    ("[backhaul]", "backhaul", "is not valid TOML"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "instead", "sentence"), BAD)
def test_one_sentence_for_what_cannot_be(file, what, instead, sentence):
    file.write_text(GOOD.replace(what, instead, 1))
    with pytest.raises(ConfigError) as problem:
        read_network(file)
    assert sentence in str(problem.value)


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"clients": 5}, "clients=5 does not fit network="),
        ({"cells": 3}, "cells=3 does not fit network="),
        ({"assign": "random"}, "says who is in which cell; leave assign=random out"),
        ({"uplink_bps": 1e6}, "says how fast everything is; leave uplink_bps out"),
        ({"partition": "cell_iid"}, "partition=cell_iid decides the cells itself, and so does network="),
        ({"network": "nowhere.toml"}, "network=nowhere.toml is no file and no folder"),
        ({"algorithm": "hiersfl", "model": "cnn", "data": "fashion-mini"}, "does not say how fast edge 'b' computes"),
    ],
)
def test_keys_that_do_not_go_with_it(file, keys, sentence):
    with pytest.raises(ConfigError) as problem:
        experiment(Config.of(KEYS | {"network": str(file)} | keys))
    assert sentence in str(problem.value)


def test_rates_that_an_algorithm_needs(file):
    file.write_text(GOOD[: GOOD.index("[[links]]")].replace("up_bps = 4e6", ""))
    with pytest.raises(ConfigError, match="has no rates from edge 'a' to the cloud and back; give the edge"):
        experiment(Config.of(KEYS | {"network": str(file)}))
    with pytest.raises(ConfigError, match="has no links between edges, and sdfeel needs them"):
        experiment(Config.of(KEYS | {"network": str(file), "algorithm": "sdfeel"}))
    for key in ("assign", "graph"):
        with pytest.raises(ConfigError, match=f"{key}=network is only for network=FILE; leave {key} out"):
            Config.of({"algorithm": "sdfeel", key: "network"})


def test_a_run_remembers_its_network(file, tmp_path):
    """The record has a digest; a resumed run finds the file, and refuses another."""
    folder = tmp_path / "run"
    first = run(KEYS | {"network": str(file)}, out=folder)
    about = json.loads((folder / "run.json").read_text())
    assert len(about["objects"]["network"]["sha256"]) == 64
    assert json.loads((folder / "setting.json").read_text())["network"]["clients"] == ["x-1", "x-2", "x-3", "y"]
    longer = run(resume=folder, rounds=3)
    assert longer.history[:2] == first.history
    assert longer.history[2]["simulated_seconds"] > first.final["simulated_seconds"] > 0
    file.write_text(GOOD.replace("5e6", "6e6"))
    with pytest.raises(RunError, match=r"network=.*is not what .* was begun with"):
        run(resume=folder, rounds=4)
    file.unlink()
    with pytest.raises(RunError, match=r"which .* was begun with, is not in"):
        run(resume=folder, rounds=4)
