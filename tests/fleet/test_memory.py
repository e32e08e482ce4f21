"""What clients and cells remember outlives their processes, and is of what has counted."""

import jax
import numpy as np
import pytest

from fedge.engine import Reference
from fedge.errors import ConfigError, FleetError, RunError
from fedge.fleet.cell import Cell, NoQuorumError
from fedge.fleet.client import START, Clients, only_samples_of, samples_of
from fedge.fleet.cloud import Cloud
from fedge.fleet.entries import Entries, Keeping
from fedge.fleet.greeting import only
from fedge.fleet.memory import COUNTED, MISSED, SINCE, CellMemory, ClientMemory, without_rows
from fedge.fleet.work import Work
from fedge.net.hub import Hub
from fedge.net.names import CLOUD, client, edge
from fedge.net.tally import Tally
from fedge.net.wire import Message
from fedge.runner import checkpoint
from tests.fleet.in_process import WAIT, fleet
from tests.fleet.test_faults import cut_links
from tests.helpers import distance, small

pytest.importorskip("grpc")
SCAFFOLD = {"correction": "scaffold", "codec": "topk:0.1", "dtype": "float64", "devices": 1, "edge_rounds": 2}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def named(number):
    return {"shift": {"w": np.full(3, float(number))}}


@pytest.mark.parametrize("on_disk", [True, False])
def test_what_was_known_before_a_turn_is_found_and_what_came_after_it_is_undone(tmp_path, on_disk):
    entries = Entries(Keeping(tmp_path if on_disk else None, "run"), "client-0", each=2, rounds=2)
    assert entries.before(0) is None
    for turn in range(9):  # rounds of two turns each; the last one is half done
        entries.keep(turn, named(turn))
    assert entries.before(9).turn == 8
    assert entries.before(8).turn == 7  # of earlier rounds the last turn stays
    assert entries.before(7).turn == 5
    entries.keep(7, named(70))
    found = entries.before(8)
    assert (found.turn, *found.rows["shift"]["w"]) == (7, 70, 70, 70)
    assert entries.before(8, last=6).turn == 5  # turn 7 did not count
    assert entries.before(3) is None  # older than a leader may go back
    if on_disk:
        assert list((tmp_path / "client-0").iterdir()) == []


def test_what_was_known_after_a_turn_is_there_until_it_is_made_again(tmp_path):
    """A client is asked once more for what has counted, and is killed before it has anything to put in its place."""
    entries = Entries(Keeping(tmp_path, "run"), "client-0", 1, 4)
    for turn in range(3):
        entries.keep(turn, named(turn))
    assert entries.before(1, last=1).turn == 0
    again = Entries(Keeping(tmp_path, "run"), "client-0", 1, 4)
    assert again.before(2).turn == 1
    again.keep(1, named(10))
    assert again.before(2).rows["shift"]["w"].max() == 10


def test_a_file_that_is_damaged_is_forgotten_and_no_other(tmp_path, caplog):
    entries = Entries(Keeping(tmp_path, "run"), "client-0", 1, 2)
    entries.keep(0, named(0)), entries.keep(1, named(1))
    file = tmp_path / "client-0/1.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    assert Entries(Keeping(tmp_path, "run"), "client-0", 1, 2).before(2).turn == 0
    assert "what it held is forgotten" in caplog.text
    assert [f.name for f in (tmp_path / "client-0").iterdir()] == ["0.safetensors"]


def test_another_runs_memory_is_kept_and_refused(tmp_path):
    Entries(Keeping(tmp_path, "run"), "client-0", 1, 2).keep(0, named(0))
    with pytest.raises(FleetError, match=r"belongs to another run; remove .*client-0, or choose another place with"):
        Entries(Keeping(tmp_path, "other"), "client-0", 1, 2)
    assert Entries(Keeping(tmp_path, "run"), "client-0", 1, 2).before(1).turn == 0


def test_who_is_killed_goes_on_from_what_was_kept(tmp_path, monkeypatch):
    """Client 2 and the edges lose what is in memory in round 2; a leader that goes back a round finds the old rows.

    In round 1 the cloud loses an edge which is at work. Nobody makes twice what it is asked for twice.
    """
    made = small(**SCAFFOLD)
    expected, _ = Reference(made.job).rounds(made.start, 0, 2)
    killed, hubs, cut, made_by = [], {}, [], []
    global_round = Cell.global_round

    def counted(cell, index, *given):
        made_by.append((cell.cell, index))
        return global_round(cell, index, *given)

    monkeypatch.setattr(Cell, "global_round", counted)

    class Mortal(Clients):
        def answer(self, message):
            if (message.kind, message.receiver, message.edge_round) == (START, client(2), 1) and not cut:
                cut.append(edge(self.cell))
                cut_links(hubs[CLOUD], cut)
            if (message.kind, message.receiver, message.round) == (START, client(2), 1) and not killed:
                killed.append(message.edge_round)
                self._told.clear()
                kept = Keeping(tmp_path, "this run")
                self._memories = {i: ClientMemory(self.work, self.cell, i, kept) for i in self.numbers}
                cut_links(hubs[edge(self.cell)], [client(2)])
                return None
            update = super().answer(message)
            assert update is None or super().answer(message) is update
            return update

    with fleet(made, clients=Mortal, keep=tmp_path) as found:
        hubs |= found.hubs
        first, _ = found.cloud.rounds(found.work.made.start, 0, 1)
        for cell in found.cells:
            cell.memory = CellMemory(found.work, cell.cell, cell.hub.me, Keeping(tmp_path, "this run"))
        for _ in range(2):
            after, _ = found.cloud.rounds(first, 1, 1)
            assert distance(made.evaluated(after), made.evaluated(expected)) < 1e-12
        found.cloud.rounds(after, 2, 1)
        after, _ = found.cloud.rounds(found.work.made.start, 0, 2)
        assert distance(made.evaluated(after), made.evaluated(expected)) < 1e-12
    assert (killed, len(cut)) == ([0], 1)
    rounds = [0, 1, 1, 2, 0, 1]
    assert [[index for cell, index in made_by if cell == c] for c in range(len(found.cells))] == 3 * [rounds]


def test_a_client_unlearns_what_did_not_count_and_says_what_it_has_lost(caplog):
    work = Work(without_rows(small(**SCAFFOLD)))
    memory = ClientMemory(work, 0, 4, Keeping())
    model = {path: np.zeros(w.shape) for path, w in work.stack_of(0).weights.items()}

    def recalled(turn, **facts):
        return memory.recall(Message(START, edge(0), client(4), turn // 2, turn % 2, facts=facts), model)

    def learn(turn, value):
        known = recalled(turn)
        shift = {path: np.full(w.shape, float(value)) for path, w in known.shift.items()}
        memory.keep(Message(START, edge(0), client(4), turn // 2, turn % 2), model, known._replace(shift=shift))

    def value(known):
        (found,) = {float(x) for w in known.shift.values() for x in np.unique(w)}
        return found

    learn(0, 1), learn(1, 2), learn(2, 3)
    assert value(recalled(3, counted=2)) == 3
    assert value(recalled(3, counted=1)) == 2
    learn(2, 3)
    assert value(recalled(4, missed=2)) == 2  # it is not known what counted before
    assert value(recalled(4, since=2)) == 0  # the edge has begun anew
    assert "has lost" not in caplog.text
    assert value(recalled(8, counted=6)) == 2
    assert "client 4 has lost its memory of round 4; it goes on with what it still knows" in caplog.text


def test_a_cell_says_which_turns_count_and_begins_anew_where_its_edge_has_lost_them(tmp_path, caplog):
    work = Work(without_rows(small(**SCAFFOLD)))
    cell = CellMemory(work, 0, edge(0), Keeping())
    change = {f"change:{path}": np.ones(w.shape) for path, w in cell.row.items()}
    cell.begin(0, {}, None)
    cell.learn(0, [1, 2], {1: Message("update", client(1), edge(0), tensors=change)})
    cell.learn(1, [1, 2], {})
    assert cell.facts(1) == {SINCE: 0, COUNTED: 0, MISSED: 1}
    assert cell.facts(2) == {SINCE: 0, COUNTED: None, MISSED: 0}
    share = work.topology.weight[1] / work.topology.cell_weight[0]
    assert all(np.allclose(w, share, rtol=1e-15) for w in cell.row.values())
    cell.keep(0, None)
    cell.begin(1, {}, None)
    assert all(np.allclose(w, share, rtol=1e-15) for w in cell.row.values())
    anew = CellMemory(work, 0, edge(0), Keeping())
    anew.begin(3, {}, None)
    assert anew.facts(1)[SINCE] == 6
    assert "edge 0 knows nothing of its cell's corrections before round 4; they begin anew" in caplog.text


@pytest.mark.parametrize("keys", [SCAFFOLD, {"codec": "topk:0.1"}, {"algorithm": "fedavg", "codec": "topk:0.1"},
                                  {"algorithm": "scaffold"}])  # fmt: skip
def test_whose_turns_have_counted_is_known_after_a_restart(tmp_path, keys):
    work = Work(without_rows(small(**keys)))
    each, place = work.schedule.edge_rounds, Keeping(tmp_path, "this run")
    cell = CellMemory(work, 0, edge(0), place)
    one, other = (int(i) for i in work.topology.roster[0][:2])
    change = {f"change:{path}": np.ones(w.shape) for path, w in cell.row.items()}
    cell.begin(0, {}, None)
    cell.learn(0, [one, other], {one: Message("update", client(one), edge(0), tensors=change)})
    cell.keep(0, None)
    before = [cell.facts(number) for number in (one, other)]
    assert before == [{SINCE: 0, COUNTED: 0, MISSED: None}, {SINCE: 0, COUNTED: None, MISSED: 0}]
    cell.begin(1, {}, None)
    cell.learn(each, [one, other], {})  # and is killed before that round is over
    for index in (1, 2):
        again = CellMemory(work, 0, edge(0), place)
        again.begin(index, {}, None)
        assert [again.facts(number) for number in (one, other)] == before
        again.keep(index, None)


def test_a_leader_that_goes_back_hides_nothing_that_is_missed_later():
    work = Work(without_rows(small(**SCAFFOLD)))
    cell = CellMemory(work, 0, edge(0), None)
    cell.learn(2, [1, 2], {})
    cell.begin(1, {}, None)
    assert [cell.facts(number)[MISSED] for number in (1, 2)] == [None, None]
    cell.learn(3, [1], {})
    assert cell.facts(1)[MISSED] == 3


def test_what_is_no_number_is_not_remembered():
    work = Work(without_rows(small(**SCAFFOLD)))
    memory, model = ClientMemory(work, 0, 4, Keeping()), dict(work.stack_of(0).weights)
    known = memory.recall(Message(START, edge(0), client(4), 0), model)
    spoilt = known._replace(lost={path: np.full(w.shape, np.nan) for path, w in known.lost.items()})
    memory.keep(Message(START, edge(0), client(4), 0), model, spoilt)
    after = memory.recall(Message(START, edge(0), client(4), 1), model)
    assert all(np.isfinite(w).all() for w in after.lost.values())


def test_a_cloud_that_is_started_again_knows_whose_models_have_counted(tmp_path, monkeypatch):
    work, told = Work(without_rows(small(algorithm="mtgc", dtype="float64", devices=1))), []

    def at_edges(self, index, cells):
        told.append({cell: self._deal_to(cell, index, 1, dealt).facts[COUNTED] for cell, dealt in cells.items()})
        if index == 1:
            raise NoQuorumError("nobody came")
        return {1: cells[1].model}, 0.0

    monkeypatch.setattr(Cloud, "_at_edges", at_edges)
    for index in (0, 1, 2, 0):  # the last time the leader has gone back
        cloud = Cloud(work, Hub(CLOUD, only, Tally()), WAIT)
        cloud.remember(Keeping(tmp_path, "this run"))
        monkeypatch.setattr(cloud, "_merge", lambda state, stacks, now: state)
        cloud.one_round(work.made.start, index)
    assert [row[1] for row in told] == [-1, 0, 0, -1]
    assert {row[0] for row in told} == {-1}


@pytest.mark.parametrize("keys", [{"participation": 0.5}, {"down_codec": "int8"}, {"server": "adam"},
                                  {"cloud_rule": "median"}, {"cloud_codec": "int8"}])  # fmt: skip
def test_an_average_that_nobody_hears_of_is_refused(keys):
    (key,) = keys
    with pytest.raises(ConfigError, match=f"learn from an average, .*; {key} sends them another one, leave it out"):
        Work(small(algorithm="mtgc", **keys))


def test_a_fleet_and_the_simulator_do_not_go_on_with_each_others_memories(tmp_path):
    """The rows of a fleet's clients are not in its run folder, so that a simulator would go on without them."""
    whole = small(**SCAFFOLD)
    made = without_rows(whole)
    assert made.start.memory._asdict() == {"shift": {}, "lost": {}, "control": {}}
    flat = without_rows(small(algorithm="scaffold"))
    assert flat.start.memory.control.keys() == flat.job.task.trainable
    plain = small()
    assert without_rows(plain) is plain
    for begun, here, says in ((made, whole, "a fleet, whose clients keep their"), (whole, made, "fedge run, with the")):
        written = {name: np.asarray(w) for name, w in checkpoint.by_name(begun.start).items()}
        with pytest.raises(RunError, match=f"was written by {says} memories .*; continue it as it was begun"):
            checkpoint.as_state(written, here.start, tmp_path)
    with pytest.raises(RunError, match="holds the state of another model or algorithm"):
        checkpoint.as_state(written, plain.start, tmp_path)


def test_a_process_holds_the_samples_of_its_own_clients_and_no_others():
    made = small(**SCAFFOLD)
    own = only_samples_of(made, [5, 2])
    expected, found = (samples_of(Work(without_rows(each)), [2, 5]) for each in (made, own))
    count = 0
    for i in (2, 5):
        for part in ("x", "y"):
            mine, whole = (np.asarray(getattr(s[i], part))[s[i].first :][: s[i].size] for s in (found, expected))
            np.testing.assert_array_equal(mine, whole)
        count += int(found[i].size)
    assert len(own.dataset.x_train) == len(own.job.data.x) == count < len(made.dataset.x_train)
    edges = only_samples_of(made, [])
    assert not edges.dataset.x_train.any()
    assert not edges.dataset.x_test.any()
    assert len(edges.job.data.x) == 1
    with pytest.raises(FleetError, match="client 7 is none of the 7 clients of this run"):
        only_samples_of(made, [7])
