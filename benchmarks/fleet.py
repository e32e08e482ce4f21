"""What a fleet's links cost beside bare gRPC: python benchmarks/fleet.py

    tree      a round through 1 cloud, 2 edges, 4 clients with a model of 1 MB, beside echoes of the same sizes
    exchange  100 kB to a client and back, as HierSFL's activations and gradients, beside an echo of the same size

Each node is a process, all links have mutual TLS, and both kinds take turns in one run: their ratio is what counts.
"""

from __future__ import annotations

import json
import multiprocessing
import queue
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import numpy as np

from fedge.net.gather import Patience, gather
from fedge.net.hub import Hub, Place
from fedge.net.identity import Authority, dial, server_credentials
from fedge.net.link import OPTIONS
from fedge.net.names import CLOUD, client, edge
from fedge.net.tally import Tally
from fedge.net.uplink import Dialling, Uplink
from fedge.net.wire import Message, Slot

MODEL, CUT = 250_000, 25_000  # numbers of four bytes
ROUNDS, EXCHANGES, TURNS = 10, 100, 11
PATIENCE = Patience(120.0, 1.0)
BARE = "/bare/Echo"


def form(size):
    return {"w": Slot("float32", (size,))}


# fedge's links


def ask_each(hub, names, number, size, vector):
    """Send a vector to each of these nodes and return what comes back."""
    places = {name: Place(name, number) for name in names}
    hub.expect({place: {"answer": form(size)} for place in places.values()})
    asks = {name: Message("ask", hub.me, name, number, tensors={"w": vector}) for name in names}
    found = gather(hub, places, asks, PATIENCE, len(names))
    return [found.answers[name].tensors["w"] for name in names]


def ask_all(hub, names, number, size, vector):
    """Send a vector to each of these nodes and return the mean of what comes back."""
    total = np.zeros(size, np.float32)
    for answer in ask_each(hub, names, number, size, vector):
        total += answer / len(names)
    return total


def answer_all(uplink, me, make):
    for message in uplink.messages():
        uplink.send(Message("answer", me, message.sender, message.round, tensors={"w": make(message)}))


def hub_of(me, own, address):
    hub = Hub(me, lambda names, facts: {}, Tally(), own)
    hub.listen(address)
    return hub


def fleet_edge(me, own, address, above, names, size):
    hub = hub_of(me, own, address)
    uplink = Uplink(Dialling((me,), CLOUD, above, {}, own), lambda head: form(size))
    answer_all(uplink, me, lambda message: ask_all(hub, names, message.round, size, message.tensors["w"]))
    hub.stop("done")


def fleet_client(me, own, parent, above, size):
    answer_all(Uplink(Dialling((me,), parent, above, {}, own), lambda head: form(size)), me, lambda m: m.tensors["w"])


# Bare gRPC


def bare_server(own, address, answer):
    import grpc

    server = grpc.server(ThreadPoolExecutor(8), options=OPTIONS)
    method = grpc.stream_stream_rpc_method_handler(lambda requests, context: map(answer, requests))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare", {"Echo": method}),))
    server.add_secure_port(address, server_credentials(own))
    server.start()
    return server


class BareLink:
    """This sends bytes over a stream and waits for the answer."""

    def __init__(self, own, name, address):
        self._out = queue.SimpleQueue()
        while True:
            try:
                self._channel = dial(address, own, name, OPTIONS)
                break
            except OSError:
                time.sleep(0.1)
        self._answers = self._channel.stream_stream(BARE)(iter(self._out.get, None))

    def send(self, data):
        self._out.put(data)

    def receive(self):
        return next(self._answers)


def bare_edge(own, address, below):
    links = [BareLink(own, name, at) for name, at in below]

    def answer(data):
        for link in links:
            link.send(data)
        answers = [link.receive() for link in links]
        return answers[0]

    bare_server(own, address, answer).wait_for_termination()


def bare_client(own, address):
    bare_server(own, address, lambda data: data).wait_for_termination()


# Both, in turns


def milliseconds(work, count):
    took = []
    for _ in range(count):
        began = time.perf_counter()
        work()
        took.append(1000 * (time.perf_counter() - began))
    return took


def main(port=7600):
    authority = Authority.create("bench")
    at = lambda n: f"127.0.0.1:{port + n}"  # noqa: E731
    spawn, running = multiprocessing.get_context("spawn"), []

    def start(role, *given):
        running.append(spawn.Process(target=role, args=given, daemon=True))
        running[-1].start()

    own = authority.issue(CLOUD)
    for e in (0, 1):
        mine = authority.issue(edge(e))
        start(fleet_edge, edge(e), mine, at(1 + e), at(0), [client(2 * e), client(2 * e + 1)], MODEL)
        start(bare_edge, mine, at(11 + e), [(edge(2 + c), at(20 + c)) for c in (2 * e, 2 * e + 1)])
    for c in range(4):
        mine = authority.issue(client(c))
        start(fleet_client, client(c), mine, edge(c // 2), at(1 + c // 2), MODEL)
        start(bare_client, authority.issue(edge(2 + c)), at(20 + c))  # whom somebody dials is a server
    start(fleet_client, client(9), authority.issue(client(9)), CLOUD, at(0), CUT)

    hub, vector, cut = hub_of(CLOUD, own, at(0)), np.ones(MODEL, np.float32), np.ones(CUT, np.float32)
    links, single = [BareLink(own, edge(e), at(11 + e)) for e in (0, 1)], BareLink(own, edge(2), at(20))
    data, small, numbers = vector.tobytes(), cut.tobytes(), iter(range(10**6))

    def bare_tree():
        for link in links:
            link.send(data)
        for link in links:
            link.receive()

    def bare_exchange():
        single.send(small)
        single.receive()

    works = {
        "tree": (lambda: ask_all(hub, [edge(0), edge(1)], next(numbers), MODEL, vector), bare_tree, ROUNDS),
        "exchange": (lambda: ask_each(hub, [client(9)], next(numbers), CUT, cut), bare_exchange, EXCHANGES),
    }
    for ours, bare, _ in works.values():  # everybody is there, and warm
        milliseconds(ours, 3), milliseconds(bare, 3)
    result = {}
    for name, (ours, bare, count) in works.items():
        both = [(milliseconds(ours, count), milliseconds(bare, count)) for _ in range(TURNS)]
        fleet, echo = (median([t for turn in both for t in turn[n]]) for n in (0, 1))
        ratios = sorted(median(a) / median(b) for a, b in both)
        result[name] = {"fedge_ms": round(fleet, 3), "bare_ms": round(echo, 3), "ratio": round(fleet / echo, 3),
                        "ratio_of_turns": [round(r, 2) for r in ratios]}  # fmt: skip
        print(name, json.dumps(result[name]), flush=True)
    hub.stop("done")
    for process in running:
        process.terminate()
        process.join()


if __name__ == "__main__":
    sys.exit(main())
