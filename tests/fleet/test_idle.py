"""Who is still of use in a fleet on one machine, where nobody starts a process again."""

from types import SimpleNamespace

import pytest

from fedge.experiment.fleet_file import fleet_of
from fedge.fleet.up import Others, idle_nodes
from fedge.fleet.work import Work
from fedge.net.names import client, edge
from tests.helpers import small

pytest.importorskip("grpc")


@pytest.mark.parametrize(
    ("algorithm", "quorum", "lost", "idle"),
    [
        ("hierfavg", {}, [client(0)], None),
        ("hierfavg", {"edge": 0.5}, [client(0)], set()),
        ("hierfavg", {"edge": 0.5}, [client(0), client(1)], None),
        ("hierfavg", {"edge": 0.5, "cloud": 0.5}, [client(0), client(1)], {edge(0)}),
        ("hierfavg", {"edge": 0.75, "cloud": 0.5}, [client(0)], {edge(0), client(1)}),
        ("hierfavg", {"edge": 0.5, "cloud": 0.5}, [edge(0)], {client(0), client(1)}),
        ("hierfavg", {"edge": 0.5, "cloud": 0.5}, [edge(0), client(2), client(3)], None),
        ("fedavg", {"edge": 0.5}, [client(0), client(1)], set()),
        ("fedavg", {"edge": 0.5}, [client(0), client(1), client(2)], None),
        ("sdfeel", {"edge": 0.5, "cloud": 0.5}, [client(0)], set()),
        ("sdfeel", {"edge": 0.5, "cloud": 0.5}, [edge(0)], None),  # a monitor needs all of them
    ],
)
def test_a_fleet_goes_on_where_its_quorums_can_be_met(tmp_path, algorithm, quorum, lost, idle):
    cells = tmp_path / "cells.txt"
    cells.write_text("\n".join("0011"))
    keys = {"algorithm": algorithm, "clients": 4}
    keys |= {"cells": 1} if algorithm == "fedavg" else {"cells": 2, "assign": str(cells)}
    fleet = fleet_of({"run": keys, "quorum": quorum}, "idle")
    assert idle_nodes(fleet, Work(small(**keys)), set(lost)) == idle


@pytest.mark.parametrize(("algorithm", "why"), [
    ("sdfeel", "and without a cloud every edge is needed, whatever [quorum] says"),
    ("hierfavg", "without which [quorum] edge = 0.5, cloud = 1 cannot be met"),
])  # fmt: skip
def test_an_edge_that_is_missed_is_named_with_the_reason(algorithm, why):
    keys, said = {"algorithm": algorithm, "clients": 4, "cells": 2}, []
    leader = SimpleNamespace(work=Work(small(**keys)), hub=SimpleNamespace(stop=said.append))
    fleet = fleet_of({"run": keys, "quorum": {"edge": 0.5, "cloud": 0.5 if algorithm == "sdfeel" else 1}}, "idle")
    others = Others(fleet, SimpleNamespace(leader=leader), None, None, None)
    assert others.ended("edge-1 has ended (killed by signal 9)", {edge(1)}) == set()
    assert said == [others.problem] == [f"edge-1 has ended (killed by signal 9), {why}"]
