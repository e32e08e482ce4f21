"""How a node is doing, for whoever runs the fleet: asked over the wire with the operator's certificate, or by metrics.

status      operator → node: nothing        node → operator: the round, who is connected, bytes of each link, scores
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedge.errors import FleetError, brief
from fedge.net.identity import Credentials, dial
from fedge.net.link import SERVICE
from fedge.net.names import OPERATOR, Name
from fedge.net.wire import NOTHING, Facts, Head, Message, pack, read_body, read_head, require

STATUS = "status"  # the kind of both messages
METHOD = "Status"
SECONDS = 10.0  # for an answer
UNREADABLE = (FleetError, KeyError, TypeError, ValueError, AttributeError, OverflowError)


@dataclass(frozen=True)
class Status:
    """This is how a node is doing."""

    node: Name
    round: int = 0  # global rounds that have ended
    rounds: int | None = None  # of how many, where that is known
    connected: tuple[Name, ...] = ()
    sent: Mapping[str, Mapping[Name, tuple[int, int]]] = field(default_factory=dict)  # tier → link → payload, framing
    seconds: float | None = None  # of the last round
    missing: int = 0  # answers that were late, lost or refused
    scores: Mapping[str, float] = field(default_factory=dict)  # of the newest evaluation: accuracy, loss

    @property
    def bytes(self) -> dict[str, tuple[int, int]]:
        """Return payload and framing of each tier."""
        return {
            tier: (sum(p for p, _ in links.values()), sum(f for _, f in links.values()))
            for tier, links in self.sent.items()
        }


@dataclass
class Progress:
    """A node writes down here how far it is, for whoever asks; its links tell the rest."""

    rounds: int | None = None
    round: int = 0
    seconds: float | None = None
    missing: int = 0
    scores: Mapping[str, float] = field(default_factory=dict)

    def ended(self, index: int, seconds: float) -> None:
        """Note that a global round has ended; rounds are counted from 0."""
        self.round, self.seconds = index + 1, seconds


def facts_of(status: Status) -> dict[str, Any]:
    """Write a status as plain values of JSON."""
    return {
        "round": status.round,
        "rounds": status.rounds,
        "connected": [str(name) for name in status.connected],
        "sent": {tier: {str(name): [*each] for name, each in links.items()} for tier, links in status.sent.items()},
        "seconds": status.seconds,
        "missing": status.missing,
        "scores": {name: value for name, value in status.scores.items() if math.isfinite(value)},
    }


def status_of(node: Name, facts: Facts) -> Status:
    """Read a status from what a node has sent, which may be anything."""
    try:
        return Status(
            node,
            _count(facts["round"]),
            None if facts["rounds"] is None else _count(facts["rounds"]),
            *links_of(facts),
            None if facts["seconds"] is None else float(facts["seconds"]),
            _count(facts["missing"]),
            {str(name): float(value) for name, value in facts["scores"].items()},
        )
    except UNREADABLE as problem:
        raise FleetError(
            f"{node.words} says of itself what cannot be read ({type(problem).__name__}: {brief(problem)}); run the "
            "same version on both sides"
        ) from None


def links_of(facts: Facts) -> tuple[tuple[Name, ...], dict[str, dict[Name, tuple[int, int]]]]:
    """Read who is connected to a node, and what it has counted on its links; else it raises one of `UNREADABLE`."""
    sent = {
        str(tier): {Name.of(name): (_count(payload), _count(framing)) for name, (payload, framing) in links.items()}
        for tier, links in facts["sent"].items()
    }
    return tuple(Name.of(name) for name in facts["connected"]), sent


def _count(given: Any) -> int:
    if type(given) is not int or given < 0:
        raise ValueError(f"{brief(given)} is no count")
    return given


def handler(me: Name, own: Credentials | None, read: Callable[[], Status]) -> Any:
    """Return what a gRPC server answers the method `Status` with; without credentials whoever asks is answered."""
    import grpc

    def answer(request: bytes, context: Any) -> bytes:
        try:
            if own is not None:
                own.require(context, OPERATOR)
            require(_head(request), NOTHING)
            return _packed(Message(STATUS, me, OPERATOR, facts=facts_of(read())))
        except FleetError as problem:
            return context.abort(grpc.StatusCode.PERMISSION_DENIED, str(problem))  # which does not return

    return grpc.unary_unary_rpc_method_handler(answer)


def ask(address: str, node: Name, own: Credentials) -> Status:
    """Ask a node how it is doing; a node that does not answer is an OSError."""
    import grpc

    with dial(address, own, node) as channel:
        try:
            found = channel.unary_unary(f"/{SERVICE}/{METHOD}")(
                _packed(Message(STATUS, OPERATOR, node)), timeout=SECONDS
            )
        except grpc.RpcError as problem:
            refused = problem.code() is grpc.StatusCode.PERMISSION_DENIED
            said = str(problem.details())
            raise FleetError(f"{node.words} refuses: {said}") if refused else OSError(brief(said)) from None
    head = _head(found)
    require(head, NOTHING)
    read_body(head, b"")
    return status_of(node, head.bare.facts)


def _packed(message: Message) -> bytes:
    head, parts = pack(message)
    return head + b"".join(parts)


def _head(data: bytes) -> Head:
    head = read_head(data)
    if head.bare.kind != STATUS:
        raise FleetError(f"a {brief(head.bare.kind)} came where a status is meant")
    return head
