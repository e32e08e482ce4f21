"""Who is stopped leaves quietly, and others dial again; only who has heard or decided that all is over says so."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from fedge.errors import DivergenceError, FleetError, StoppedError
from fedge.fleet import edge as edge_role
from fedge.fleet import gossip, nodes
from fedge.net.gather import Patience
from fedge.net.hub import Hub
from fedge.net.names import CLOUD, MONITOR, edge
from fedge.net.tally import Tally
from fedge.runner.signals import Leave

pytest.importorskip("grpc")


def hub_of(name, monkeypatch):
    """Return a hub, and a list of how it is told to stop."""
    hub, said = Hub(name, lambda names, facts: {}, Tally()), []
    stop = hub.stop

    def listed(reason, *, quietly=False):
        said.append("quiet" if quietly else "over")
        stop(reason, quietly=quietly)

    monkeypatch.setattr(hub, "stop", listed)
    return hub, said


def ending(problem):
    """Return what ends as given, or well."""

    def end(*given, **named):
        if problem is not None:
            raise problem

    return end


@pytest.mark.parametrize(("problem", "says"), [(None, "over"), (Leave(15), "quiet"), (FleetError("lost"), "quiet")])
@pytest.mark.parametrize("below_a_cloud", [True, False])
def test_clients_of_an_edge_that_was_stopped_are_not_sent_home(below_a_cloud, problem, says, monkeypatch):
    hub, said = hub_of(edge(0), monkeypatch)
    monkeypatch.setattr(gossip, "LINGER", 0.0)
    cell, end = SimpleNamespace(hub=hub), ending(problem)

    def serve():
        if below_a_cloud:
            edge_role.serve(SimpleNamespace(cell=cell), SimpleNamespace(messages=lambda: end() or ()))
        else:
            gossip.serve(SimpleNamespace(cell=cell, expect=lambda index: None, round=end), 1, [], None)

    with nullcontext() if problem is None else pytest.raises(type(problem)):
        serve()
    assert said == [says]


@pytest.mark.parametrize("leader", [CLOUD, MONITOR])
@pytest.mark.parametrize(
    ("problem", "says"), [(None, "over"), (DivergenceError("nan"), "over"), (StoppedError("Ctrl-C"), "quiet")]
)
def test_a_run_that_has_diverged_is_over_and_one_that_was_stopped_is_not(leader, problem, says, monkeypatch):
    hub, said = hub_of(leader, monkeypatch)
    monkeypatch.setattr(nodes, "run", ending(problem))
    with nullcontext() if problem is None else pytest.raises(type(problem)):
        nodes.lead(SimpleNamespace(hub=hub), SimpleNamespace(run={}))
    assert said == [says]


def test_an_edge_that_a_monitor_refuses_stays_for_its_neighbours_as_without_one(monkeypatch):
    hub, _ = hub_of(edge(0), monkeypatch)
    refused = SimpleNamespace(messages=ending(FleetError("the monitor refuses: x")), connected=False,
                              send=lambda message: None)  # fmt: skip
    monkeypatch.setattr(gossip, "Uplink", lambda *given, **named: refused)
    monkeypatch.setattr(gossip, "LINGER", 0.1)
    seen = []
    node = SimpleNamespace(
        cell=SimpleNamespace(hub=hub), expect=lambda index: None, round=lambda index: None, report=lambda index: None,
        catch_up=lambda: seen.append(1), patience=Patience(0.1),
    )  # fmt: skip
    gossip.serve(node, 1, [], SimpleNamespace())
    assert seen
