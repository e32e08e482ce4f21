"""Nodes meet, are refused with a sentence on both sides, and count what comes once."""

import sys
import threading

import numpy as np
import pytest

from fedge.errors import FleetError
from fedge.fleet.greeting import only, vet
from fedge.net import frames, uplink
from fedge.net.frames import frames_of, received
from fedge.net.gather import Patience, gather
from fedge.net.hub import Hub, Place
from fedge.net.identity import Authority
from fedge.net.link import DROPPED, REFUSED, Link
from fedge.net.names import CLOUD, client, edge
from fedge.net.tally import Tally
from fedge.net.uplink import Dialling, Inbox, Uplink
from fedge.net.wire import NOTHING, Message, Slot

pytest.importorskip("grpc")
HELLO = {"fedge": "1.0", "config": {"lr": 0.1}, "objects": {}}
FORM = {"w": Slot("float32", (3,))}


@pytest.fixture
def hub():
    made = Hub(CLOUD, vet(HELLO, only(client(0), client(1), where="the cloud")), Tally())
    made.at = f"127.0.0.1:{made.listen('127.0.0.1:0')}"
    yield made
    made.stop("the test is over")


def dialling(hub, name=client(0), hello=HELLO, own=None):
    return Dialling((name,), CLOUD, hub.at, hello, own, patience=30.0)


def update(values=(1, 2, 3), sender=client(0), number=0):
    return Message("update", sender, CLOUD, number, tensors={"w": np.array(values, np.float32)})


@pytest.mark.parametrize(
    ("name", "hello", "says"),
    [
        (client(7), HELLO, "client 7 does not belong to the cloud"),
        (edge(0), HELLO, "edge 0 does not belong to the cloud"),
        (client(0), HELLO | {"fedge": "0.9"}, "client 0 runs fedge 0.9 and this node 1.0; install the same version"),
        (client(0), HELLO | {"config": {"lr": 0.2}}, r"client 0 has other keys than this node \(lr: 0.1 → 0.2\)"),
        (client(0), HELLO | {"objects": {"data": "x"}}, "client 0 has other files or functions of its own"),
    ],
)
def test_a_node_that_does_not_fit_is_refused_on_both_sides(hub, caplog, name, hello, says):
    with pytest.raises(FleetError, match=says) as refused:
        dialling(hub, name, hello).connect()
    assert "\n" not in str(refused.value)
    assert [record for record in caplog.records if "the cloud refuses a node" in record.message]
    kept = dialling(hub).connect()  # the fleet goes on without the offender
    assert kept
    assert hub.connected() == (client(0),)


def test_two_processes_cannot_be_one_node(hub, monkeypatch):
    monkeypatch.setattr(uplink, "TWICE", 0.0)
    first = dialling(hub).connect()
    assert first
    with pytest.raises(FleetError, match="client 0 is connected already; two processes cannot be one node"):
        dialling(hub).connect()


def test_a_port_that_is_taken_is_named(hub):
    with pytest.raises(FleetError, match=r"edge 0 cannot listen at 127.0.0.1:.*: the port is taken"):
        Hub(edge(0), vet(HELLO, only(where="")), Tally()).listen(hub.at)


def test_nobody_speaks_for_another(hub):
    link, answers = dialling(hub).connect()
    hub.expect({Place(client(1), 0): {"update": FORM}})
    link.send(update(sender=client(1)))
    (last,) = received(answers, lambda head: NOTHING)
    assert last.message.kind == REFUSED
    assert "client 0 sent something (update) in the name of client 1" in last.message.facts["reason"]


def test_what_comes_twice_or_late_is_dropped_with_a_reason(hub):
    link, answers = dialling(hub).connect()
    place = Place(client(0), 0)
    hub.expect({place: {"update": FORM}})
    for values in ((1, 2, 3), (4, 5, 6)):
        link.send(update(values))
    dropped = next(received(answers, lambda head: NOTHING)).message
    assert (dropped.kind, dropped.facts["kind"]) == (DROPPED, "update")
    np.testing.assert_array_equal(hub.take(place).tensors["w"], (1, 2, 3))
    assert hub.take(place) is None
    assert hub.tally.totals()["client_to_cloud"].payload == 12


def test_what_is_left_of_an_attempt_that_was_given_up_is_not_taken_for_the_next(hub):
    link, answers = dialling(hub).connect()
    hub.expect({Place(client(0), 0, attempt=2): {"update": FORM}})
    link.send(update((4, 5, 6))._replace(attempt=1))
    dropped = next(received(answers, lambda head: NOTHING)).message
    assert dropped.facts["reason"] == "it came twice, too late, or was not asked for"
    asked = update()._replace(attempt=2)
    link.send(asked)
    link.send(asked)
    assert next(received(answers, lambda head: NOTHING)).message.kind == DROPPED  # the second of the two
    np.testing.assert_array_equal(hub.take(Place.of(asked)).tensors["w"], (1, 2, 3))


def test_what_the_model_does_not_say_ends_the_link_and_nothing_else(hub, caplog):
    link, answers = dialling(hub).connect()
    hub.expect({Place(client(0), 0): {"update": FORM}})
    link.send(update((1, 2, 3, 4)))
    (last,) = received(answers, lambda head: NOTHING)
    assert "brings 'w' as float32[4] and not as float32[3]" in last.message.facts["reason"]
    other = dialling(hub, client(1)).connect()
    assert other
    assert client(0) not in hub.connected()


def test_large_messages_travel_in_frames(monkeypatch):
    monkeypatch.setattr(frames, "CHUNK", 10)
    message = Message("update", client(0), CLOUD, tensors={"a": np.arange(7, dtype=np.float32), "b": np.arange(3.0)})
    cut = frames_of(message)
    assert len(cut) == -(-message.payload // 10)
    form = {"a": Slot("float32", (7,)), "b": Slot("float64", (3,))}
    for many in (1, 2):
        found = list(received(iter(cut * many), lambda head: form))
        assert len(found) == many
        np.testing.assert_array_equal(found[-1].message.tensors["b"], np.arange(3.0))
        assert found[0].framing + message.payload == sum(map(len, cut)) + 5 * len(cut)
    assert next(received(iter(cut), lambda head: None)).message is None  # passed over
    with pytest.raises(FleetError, match="not as long as it was announced"):
        list(received(iter(cut[:-1]), lambda head: form))


def test_messages_of_two_senders_come_one_after_the_other(monkeypatch):
    """They are of 1000 frames each; frame by frame they would mix wherever threads are switched, often here."""
    monkeypatch.setattr(frames, "CHUNK", 4)
    often = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    link, form = Link((client(0),)), {"a": Slot("float32", (1000,))}

    def send(value):
        for _ in range(20):
            link.send(Message("update", client(0), CLOUD, tensors={"a": np.full(1000, value, np.float32)}))

    threads = [threading.Thread(target=send, args=(value,)) for value in (1, 2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    sys.setswitchinterval(often)
    link.close()
    found = [one.message.tensors["a"] for one in received(link.outgoing(), lambda head: form)]
    assert len(found) == 40
    assert all((one == one[0]).all() for one in found)


def test_of_several_asks_to_one_node_the_newest_is_worth_the_work(caplog):
    inbox = Inbox()
    for number, who in ((0, 0), (0, 1), (1, 0), (2, 0)):
        inbox.put(Message("start", CLOUD, client(who), number))
    inbox.put(None)  # the link was lost
    came = [inbox.get() for _ in range(3)]
    assert [(m.receiver, m.round) for m in came[:2]] == [(client(1), 0), (client(0), 2)]
    assert came[2] is None
    assert caplog.text.count("client 0 comes too late for round") == 2


def test_who_comes_back_is_asked_again(hub):
    """Its answer to the first question is lost with the link."""
    asked = threading.Semaphore(0)

    def play():
        own = Uplink(dialling(hub), lambda head: FORM)
        for n, message in enumerate(own.messages()):
            asked.release()
            if n:
                own.send(update(number=message.round))

    threading.Thread(target=play, daemon=True).start()
    place = Place(client(0), 4)
    hub.expect({place: {"update": FORM}})
    ask = Message("start", CLOUD, client(0), 4, tensors={"w": np.zeros(3, np.float32)})

    def cut():
        asked.acquire()
        hub.detach(hub.link(client(0)))

    threading.Thread(target=cut, daemon=True).start()
    found = gather(hub, {client(0): place}, {client(0): ask}, Patience(300.0, 1.0), 1)
    assert found.missing == {}
    assert found.answers[client(0)].round == 4


def test_certificates_decide_who_is_who():
    """A client with a certificate of its own cannot be another one, and without one it is nobody."""
    authority = Authority.create("demo")
    made = Hub(CLOUD, vet(HELLO, only(client(0), client(1), where="the cloud")), Tally(), authority.issue(CLOUD))
    made.at = f"127.0.0.1:{made.listen('127.0.0.1:0')}"
    try:
        with pytest.raises(FleetError, match="a certificate of client 1 was shown by whoever calls itself client 0"):
            dialling(made, own=authority.issue(client(1))).connect()
        kept = dialling(made, own=authority.issue(client(0))).connect()
        assert kept
        assert made.connected() == (client(0),)
    finally:
        made.stop("the test is over")
