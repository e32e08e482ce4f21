"""A node says how it is doing while it works: a status to the operator, lines for a log."""

import json

from fedge.fleet.told import without
from fedge.net.names import client, edge
from fedge.net.watched import watched
from tests.fleet.in_process import fleet
from tests.helpers import small


def test_a_fleet_at_work_tells_of_its_rounds_links_and_bytes(tmp_path):
    made = small()
    with fleet(made) as found:
        hub = found.cloud.hub
        with watched(hub.me, hub.status, tmp_path / "log.jsonl"):
            found.cloud.rounds(made.start, 0, 2)
            without(hub, edge(1), 1, "it is lost")
        status, below = hub.status(), found.hubs[edge(0)].status()
    assert (status.node, status.round, status.missing) == (hub.me, 2, 0)
    assert set(status.connected) == set(map(edge, range(made.job.algorithm.topology.cells)))
    payload = sum(int(links.sum()) for i in range(2) for t, links in made.clock.ledger.round(i).items() if "cloud" in t)
    assert sum(p for p, _ in status.bytes.values()) == payload  # to the byte, and told of each link
    assert below.round == 2
    assert {name.role for links in below.sent.values() for name in links} == {client(0).role}
    rows = [json.loads(row) for row in (tmp_path / "log.jsonl").read_text().splitlines()]
    said = {(row["node"], row["round"], row["event"]) for row in rows}
    assert {("cloud", 1, "round"), ("cloud", 2, "round"), ("cloud", 2, "missing")} <= said
    assert rows[-1]["peer"] == "edge-1"
