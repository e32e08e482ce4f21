"""What a fleet does without some of its nodes, and with some that come back."""

import time
from dataclasses import replace

import jax
import numpy as np
import pytest

from fedge.core.client import NOTHING, Link
from fedge.engine import Reference
from fedge.fleet import gossip
from fedge.fleet.cell import Dealt, Turn
from fedge.fleet.client import Clients, samples_of
from fedge.fleet.cloud import Cloud
from fedge.fleet.gossip import GossipEdge, start_of
from fedge.fleet.greeting import greeting, only, vet
from fedge.fleet.kept import Kept
from fedge.fleet.memory import ORIGIN
from fedge.fleet.monitor import Monitor
from fedge.fleet.split import GRADIENT
from fedge.fleet.split_cell import Upper
from fedge.fleet.split_client import SplitClients
from fedge.fleet.work import Work
from fedge.net.gather import Gathered, Patience
from fedge.net.hub import Hub
from fedge.net.link import Link as Wire
from fedge.net.names import CLOUD, MONITOR, client, edge
from fedge.net.tally import Tally
from fedge.net.uplink import Dialling
from fedge.net.wire import Message
from tests.fleet.in_process import WAIT, Cell, fleet, neighbours, vet_of
from tests.helpers import distance, small, until

pytest.importorskip("grpc")
HALF = Patience(deadline=300.0, quorum=0.5, grace=0.0)


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def saying(facts, *those):
    """Return clients of which some say something else of their updates."""

    class Saying(Clients):
        def answer(self, message):
            update = super().answer(message)
            return update._replace(facts=facts) if message.receiver.number in those else update

    return Saying


def poisoned(*bad):
    """Return clients of which some send what is no number."""

    class Poisoned(Clients):
        def answer(self, message):
            update = super().answer(message)
            spoilt = {path: w * np.nan for path, w in update.tensors.items()}
            return update._replace(tensors=spoilt) if message.receiver.number in bad else update

    return Poisoned


def mean_of(found, start, clients, index=0):
    """Average what these clients train from a model in a global round, by their own weights."""
    work, total, weight = found.work, dict.fromkeys(start, 0.0), found.work.topology.weight
    for i in clients:
        first = work.first(index, 0)
        own = work.train(start, Link(), samples_of(work, [i])[i], NOTHING, i, first).weights
        total = {p: t + weight[i] / weight[list(clients)].sum() * np.asarray(own[p]) for p, t in total.items()}
    return total


def test_an_update_that_is_no_number_is_refused_and_named(caplog):
    made = small(algorithm="fedavg", clients=3, cells=1, dtype="float64", devices=1)
    with fleet(made, per_process=1, clients_patience=HALF, clients=poisoned(1)) as found:
        after, _ = found.cloud.rounds(made.start, 0, 1)
        assert distance(after, mean_of(found, made.start, (0, 2))) < 1e-12  # the others' shares sum to 1
    assert (
        "goes on without client 1 in round 1, edge round 1: its update holds numbers that are not finite" in caplog.text
    )
    assert found.hubs[next(iter(found.hubs))].status().missing == 1


@pytest.mark.parametrize("loss", [10**400, 1e301, True, "1"])
def test_a_loss_that_cannot_be_counted_with_is_refused_like_no_loss(loss, caplog):
    made = small(algorithm="fedavg", clients=3, cells=1, dtype="float64", devices=1)
    with fleet(made, per_process=1, clients_patience=HALF, clients=saying({"loss": loss, "seconds": 1.0}, 1)) as found:
        after, _ = found.cloud.rounds(made.start, 0, 1)
        assert distance(after, mean_of(found, made.start, (0, 2))) < 1e-12
    assert "its update does not say loss and seconds in numbers" in caplog.text


@pytest.mark.parametrize("keys", [{"algorithm": "sdfeel", "graph": "path"}, {"algorithm": "hiersfl", "cut": "0"}])
def test_a_run_that_diverges_has_no_number_for_a_loss_and_ends_as_any_run(keys):
    made = small(lr=1e30, **keys)
    with fleet(made) as found:
        _, loss = found.cloud.rounds(made.start, 0, 2)
    assert np.isnan(loss)


@pytest.mark.parametrize("sent", [{"x": 1}, {"x": {"edge-0": [1]}}, {"x": {"edge-0": [-1, 1]}}, {"x": {"y": [1, 1]}}])
def test_what_an_edge_says_of_itself_and_cannot_be_read_is_left_out(sent, caplog):
    made = small(algorithm="fedavg", clients=3, cells=1)
    leader = Cloud(Work(made), Hub(CLOUD, lambda names, facts: {}, Tally()), HALF)
    leader.hear(0, {"sent": {}, "connected": ["client-0"], "seconds": 1.0})
    leader.hear(0, {"sent": sent, "connected": [], "seconds": 1.0})
    leader.hear(0, {"sent": {}, "connected": ["x"], "seconds": 1.0})
    leader.hear(0, {"sent": {}, "connected": [], "seconds": 10**400})
    assert caplog.text.count("edge 0 says of itself what cannot be read") == 3
    assert leader.below(0) == (client(0),)
    assert leader.counted() == {}


def test_a_cell_without_a_quorum_tells_the_cloud_which_goes_on_or_keeps_its_model(caplog):
    """Two of three clients of cell 0 are refused, where two are needed; cell 1 has all of its own."""
    made = small(clients=5, cells=2, dtype="float64", devices=1, edge_rounds=1)
    (first, second) = ([int(i) for i in own] for own in made.job.algorithm.topology.roster)
    first, second = sorted((first, second), key=len, reverse=True)
    for enough, goes_on in ((HALF, True), (Patience(300.0, 1.0), False)):
        with fleet(made, patience=enough, clients_patience=HALF, clients=poisoned(*first[:2])) as found:
            after, _ = found.cloud.rounds(made.start, 0, 1)
            expected = mean_of(found, made.start, second) if goes_on else made.start
            assert distance(after, expected) < 1e-12
    assert "1 of 3 clients answered and 2 are needed" in caplog.text
    assert "round 1 leaves the model as it was: 1 of 2 edges answered and 2 are needed" in caplog.text


def silent(*those):
    """Return clients of which some say nothing from round 2 on."""

    class Silent(Clients):
        def answer(self, message):
            late = message.round and message.receiver.number in those
            return None if late else super().answer(message)

    return Silent


@pytest.mark.parametrize(("quorum", "goes_on"), [(0.5, True), (1.0, False)])
def test_a_deadline_that_passes_is_the_end_of_waiting(quorum, goes_on, caplog):
    """A client of cell 0 stays silent; in the round before programs are compiled, which has no such deadline."""
    made = small(clients=4, cells=2, dtype="float64", devices=1, edge_rounds=1)
    own = [[int(i) for i in roster] for roster in made.job.algorithm.topology.roster]
    assert [len(roster) for roster in own] == [2, 2]
    with fleet(made, per_process=1, patience=HALF, clients=silent(own[0][0])) as found:
        before, _ = found.cloud.rounds(made.start, 0, 1)
        for cell in found.cells:
            cell.patience = Patience(deadline=2.0, quorum=quorum)
        began = time.monotonic()
        after, _ = found.cloud.rounds(before, 1, 1)
        took = time.monotonic() - began
        share = made.job.algorithm.topology.cell_weight
        cells = [mean_of(found, before, clients, 1) for clients in (own[0][1:], own[1])]
        both = {path: share[0] * w + share[1] * cells[1][path] for path, w in cells[0].items()}
        assert distance(after, both if goes_on else cells[1]) < 1e-12
        kept, _ = replaced(found.cloud, Patience(300.0, 1.0)).rounds(after, 2, 1)
        if not goes_on:
            assert distance(kept, after) == 0
    assert 2.0 <= took < 60
    who = f"edge 0 goes on without client {own[0][0]} in round 2, edge round 1: nothing came in 2 s"
    assert who in caplog.text
    if not goes_on:
        assert "round 3 leaves the model as it was: 1 of 2 edges answered and 2 are needed" in caplog.text


def replaced(cloud, patience):
    cloud.patience = patience
    return cloud


def test_who_was_late_once_is_sent_what_its_start_would_have_told():
    """A client that is busy finds the next start in the place of the one that began the global round."""
    work = Work(small(prox=0.5, prox_anchor="cloud", edge_rounds=3))
    cell = Cell(work, Hub(edge(0), only, Tally()), 0, HALF)
    late, *others = names = tuple(client(int(i)) for i in work.topology.roster[0])
    links, dealt, told = {name: Wire((name,)) for name in names}, Dealt(dict(work.stack_of(0).weights)), []
    for edge_round, missing in enumerate(({late: "nothing came"}, {others[0]: "nothing came"}, {})):
        turn = Turn(0, edge_round, work.first(0, edge_round), dealt)
        before = cell.told_before(turn)
        told.append({name for name in names if [m for m in before(name, links[name]) if m.kind == ORIGIN]})
        answers = {name: Message("update", name, cell.hub.me) for name in names if name not in missing}
        cell.required(turn, [name.number for name in names], len(names), Gathered(answers, missing), HALF, set())
    assert told == [set(), {late}, set()]


def cut_links(hub, names):
    for name in names:
        if (link := hub.link(name)) is not None:
            hub.detach(link)


@pytest.mark.parametrize("algorithm", ["hierfavg", "sdfeel"])
def test_links_that_are_cut_after_a_round_are_there_again_in_the_next(algorithm):
    made = small(algorithm=algorithm, dtype="float64", devices=1)
    expected, _ = Reference(made.job).rounds(made.start, 0, 2)
    with fleet(made) as found:
        there = {}

        def cut(index):
            for hub in found.hubs.values() if index == 0 else ():
                there[hub] = set(hub.connected())
                cut_links(hub, there[hub])

        found.cloud.told = cut
        after, _ = found.cloud.rounds(made.start, 0, 2)
        end = time.monotonic() + 60
        while not all(set(hub.connected()) >= names for hub, names in there.items()):
            assert time.monotonic() < end  # who is not back yet would not hear that the test is over
            time.sleep(0.02)
    assert distance(made.evaluated(after), made.evaluated(expected)) < 1e-12


def test_a_client_that_comes_back_in_the_middle_of_its_steps_is_not_waited_for(monkeypatch, caplog):
    """A gradient was lost with its link; without the client the edge round ends long before its deadline."""
    made = small(algorithm="hiersfl", clients=3, cells=1)
    step, answer, hubs, lost = Upper.step, SplitClients.next, [], []

    def lose(clients, message):
        if message.kind == GRADIENT and message.receiver == client(1) and not lost:
            lost.append(message)
            return None
        return answer(clients, message)

    def cut(upper, *given):
        if hubs:
            hub = hubs.pop()
            before = hub.link(client(1))
            hub.detach(before)
            while hub.link(client(1)) in (None, before):
                time.sleep(0.01)
        return step(upper, *given)

    monkeypatch.setattr(Upper, "step", cut)
    monkeypatch.setattr(SplitClients, "next", lose)
    patience = replace(HALF, deadline=3000.0)
    with fleet(made, per_process=1, clients_patience=patience) as found:
        hubs.append(found.hubs[edge(0)])
        found.cloud.rounds(made.start, 0, 1)
    assert "goes on without client 1 in round 1, edge round 1: it was lost in the middle of its steps" in caplog.text
    assert not any(hub._awaited or hub._arrived for hub in found.hubs.values())


def test_steps_share_the_deadline_of_their_edge_round():
    left = HALF.until(time.monotonic() - 1)
    assert (left.deadline, left.quorum) == (0.0, HALF.quorum)
    assert 0 < HALF.until(time.monotonic() + 9).deadline <= 9


class KilledError(Exception):
    pass


def test_an_edge_that_is_killed_between_two_exchanges_goes_on_from_what_it_kept(tmp_path):
    """Its neighbours have its first model of the round and not the second; what they sent it died with it."""
    made = small(algorithm="sdfeel", graph="path", gossip=2, dtype="float64", devices=1)
    expected, _ = Reference(made.job).rounds(made.start, 0, 2)

    class Mortal(GossipEdge):
        def _exchange(self, index, step, model, shares):
            if (index, step) == (1, 1) and not (tmp_path / "killed").exists():
                (tmp_path / "killed").touch()
                until(lambda: found.hubs[MONITOR].link(edge(1)) is not None)  # or it would connect after its death
                raise KilledError
            return super()._exchange(index, step, model, shares)

    def play(found, cell, patience, at, hello):
        me = cell.hub.me
        start = start_of(found.work, me.number)
        lower = [edge(j) for j in neighbours(found.work, me.number) if j < me.number]
        kept = Kept(tmp_path / str(me), "this run") if me == edge(1) else None

        def once(cell, kind, listen=lambda: None):
            dial = [Dialling((me,), n, at[n], hello, given_up=lambda: cell.hub.leaving) for n in (*lower, MONITOR)]
            gossip.serve(kind(cell, patience, start), found.rounds, dial[:-1], dial[-1], kept, listen)

        if me != edge(1):
            once(cell, GossipEdge)
            return
        stop, cell.hub.stop = cell.hub.stop, lambda reason, quietly: None  # who is killed says nothing
        with pytest.raises(KilledError):
            once(cell, Mortal)
        cell.hub._stopping = "killed"  # its threads dial nobody again, and all of its links are cut
        for hub in found.hubs.values():
            cut_links(hub, hub.connected() if hub is cell.hub else (me,))
        cell.hub._server.stop(0).wait()
        again = Hub(me, vet_of(found.work, hello, me), Tally())
        found.hubs[me] = again
        once(Cell(found.work, again, me.number, patience), GossipEdge, lambda: again.listen(at[me]))
        stop("it was killed long ago")

    with fleet(made, gossips_at=play) as found:
        after, _ = found.cloud.rounds(made.start, 0, 2)
    assert (tmp_path / "killed").exists()
    assert distance(made.evaluated(after), made.evaluated(expected)) < 1e-12


def test_a_monitor_that_was_away_misses_rounds_and_edges_go_on_without_it(caplog):
    """It is killed after the first of 9 rounds, and started again when the edges have made all of them."""
    made = small(algorithm="sdfeel", dtype="float64", devices=1)
    expected, _ = Reference(made.job).rounds(made.start, 0, 9)
    with fleet(made, rounds=9) as found:
        first, _ = found.cloud.rounds(made.start, 0, 1)
        hub = found.hubs[MONITOR]
        hub.stop("it is killed", quietly=True)
        edges = [edge(cell) for cell in range(found.work.topology.cells)]
        until(lambda: all(found.hubs[name].status().round == 9 for name in edges))
        again = Hub(MONITOR, vet(greeting(made, {}), only(*edges, where="the monitor")), Tally())
        monitor = Monitor(found.work, again, WAIT)
        monitor.begin(1)
        again.listen(found.at[MONITOR])
        found.hubs[MONITOR] = again
        after, _ = monitor.rounds(first, 1, 8)
        again.stop("the run is over")
    assert distance(made.evaluated(after), made.evaluated(expected)) < 1e-12
    missed = [record for record in caplog.records if "the monitor has missed round" in record.message]
    assert len(monitor.seconds) == 8 - len(missed)  # of what it missed it knows no seconds
    assert 1 <= len(missed) <= 7  # the last four are always sent again, and one may have been on its way
