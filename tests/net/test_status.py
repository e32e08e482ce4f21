"""A node tells the operator how it is doing, and nobody else; Prometheus reads the same numbers; logs are lines."""

import json
import logging
import urllib.error
import urllib.request
from concurrent import futures
from contextlib import contextmanager

import pytest

from fedge.errors import FleetError
from fedge.net.identity import Authority, server_credentials
from fedge.net.link import SERVICE
from fedge.net.log_file import note
from fedge.net.metrics import FAMILIES, Exporter, text_of
from fedge.net.names import CLOUD, OPERATOR, client, edge
from fedge.net.status import METHOD, Status, ask, facts_of, handler, status_of
from fedge.net.watched import watched

grpc = pytest.importorskip("grpc")
BUSY = Status(
    CLOUD, 3, 5, (edge(0), edge(1)),
    {"cloud_to_edge": {edge(0): (1000, 20), edge(1): (500, 10)}, "edge_to_cloud": {edge(0): (7, 1)}},
    1.5, 2, {"accuracy": 0.75, "loss": 0.5},
)  # fmt: skip


@contextmanager
def telling(own, status):
    server = grpc.server(futures.ThreadPoolExecutor(1))
    methods = {METHOD: handler(CLOUD, own, lambda: status)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    port = server.add_secure_port("127.0.0.1:0", server_credentials(own))
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


@pytest.mark.parametrize("status", [BUSY, Status(edge(7))])
def test_a_status_comes_back_as_it_was_sent(status):
    assert status_of(status.node, json.loads(json.dumps(facts_of(status)))) == status


def test_bytes_of_a_tier_are_those_of_its_links():
    assert BUSY.bytes == {"cloud_to_edge": (1500, 30), "edge_to_cloud": (7, 1)}


@pytest.mark.parametrize("change", [
    {"round": -1}, {"round": True}, {"rounds": "many"}, {"connected": ["king"]}, {"connected": 3}, {"sent": []},
    {"sent": {"up": {"edge-0": [1]}}}, {"sent": {"up": {"edge-0": [1, 2.5]}}}, {"scores": {"accuracy": "good"}},
    {"seconds": []},
])  # fmt: skip
def test_a_status_that_cannot_be_is_refused(change):
    with pytest.raises(FleetError):
        status_of(CLOUD, facts_of(BUSY) | change)
    with pytest.raises(FleetError, match="the cloud says of itself what cannot be read"):
        status_of(CLOUD, {})


def test_the_operator_is_told_and_nobody_else():
    authority = Authority.create("demo")
    with telling(authority.issue(CLOUD), BUSY) as address:
        assert ask(address, CLOUD, authority.issue(OPERATOR)) == BUSY
        with pytest.raises(
            FleetError, match=r"the cloud refuses: a certificate of client 1 was shown for the operator"
        ):
            ask(address, CLOUD, authority.issue(client(1)))
        with pytest.raises(FleetError, match="a certificate of the cloud was shown for edge 0"):
            ask(address, edge(0), authority.issue(OPERATOR))
    with pytest.raises(OSError, match="refused"):
        ask(address, CLOUD, authority.issue(OPERATOR))


def test_prometheus_reads_the_metrics():
    parser = pytest.importorskip("prometheus_client.parser")
    found = {family.name: family for family in parser.text_string_to_metric_families(text_of(BUSY))}
    assert {name.removesuffix("_total") for name in FAMILIES} == found.keys()
    assert {found[name.removesuffix("_total")].type for name in FAMILIES} == {"counter", "gauge"}
    every = {(s.name, *sorted(s.labels.items())): s.value for family in found.values() for s in family.samples}
    node = ("node", "cloud")
    assert every["fedge_rounds_total", node] == 3
    assert every["fedge_connected", node, ("role", "edge")] == 2
    assert every["fedge_payload_bytes_total", ("link", "edge-1"), node, ("tier", "cloud_to_edge")] == 500
    assert every["fedge_framing_bytes_total", ("link", "edge-1"), node, ("tier", "cloud_to_edge")] == 10
    assert every["fedge_score", ("name", "accuracy"), node] == 0.75


def test_metrics_are_served_to_this_machine_alone():
    rounds = iter([1, 2])
    exporter = Exporter(lambda: Status(CLOUD, next(rounds)), 0)
    try:
        host, _, port = exporter.address.partition(":")
        assert host == "127.0.0.1"
        for number in (1, 2):  # read anew each time
            with urllib.request.urlopen(f"http://{exporter.address}/metrics") as answer:
                assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                assert f'fedge_rounds_total{{node="cloud"}} {number}\n' in answer.read().decode()
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            urllib.request.urlopen(f"http://{exporter.address}/")
        refused.value.close()
        with pytest.raises(FleetError, match=r"cannot serve metrics at 127.0.0.1:\d+: Address already in use; choose"):
            Exporter(lambda: BUSY, int(port))
    finally:
        exporter.close()
    with pytest.raises(FleetError, match="a port is a number below 65536"):
        Exporter(lambda: BUSY, 70_000)


def test_what_happens_is_a_line_of_json(tmp_path):
    path = tmp_path / "log.jsonl"
    with watched(edge(1), lambda: BUSY, path):
        note("missing", "edge 1 goes on without client 4", level=logging.WARNING, round=3, peer=client(4))
        note("started", 'edge 1 runs "100 %"')
        logging.getLogger("fedge.net.hub").warning("%s lost %s\nfor good", "edge 1", "client 4")
    first, second, third = map(json.loads, path.read_text().splitlines())
    assert list(first)[:6] == ["time", "node", "level", "round", "event", "message"]
    assert first | {"time": 0} == {
        "time": 0, "node": "edge-1", "level": "warning", "round": 3, "event": "missing",
        "message": "edge 1 goes on without client 4", "peer": "client-4",
    }  # fmt: skip
    assert (second["round"], second["message"]) == (None, 'edge 1 runs "100 %"')
    assert (third["event"], third["message"]) == ("log", "edge 1 lost client 4\nfor good")
    assert first["time"].endswith("Z")


def test_a_node_is_watched_until_its_block_ends(tmp_path):
    logger = logging.getLogger("fedge")
    before, level = list(logger.handlers), logger.level
    logger.setLevel(logging.INFO)
    try:
        with watched(edge(1), lambda: Status(edge(1), 4), tmp_path / "log.jsonl", "0"):
            note("round", "edge 1 has ended round 4", round=4)
            (place,) = [json.loads(row)["message"] for row in (tmp_path / "log.jsonl").read_text().splitlines()][:1]
            with urllib.request.urlopen(place.rpartition(" ")[2]) as answer:
                assert b'fedge_rounds_total{node="edge-1"} 4' in answer.read()
        with (
            pytest.raises(FleetError, match="metrics cannot be at here; give PORT, or HOST:PORT"),
            watched(edge(1), lambda: BUSY, tmp_path / "log.jsonl", "here"),
        ):
            pass
    finally:
        logger.setLevel(level)
    assert logger.handlers == before
    note("round", "nobody hears this")
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 2
