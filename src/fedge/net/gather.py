"""A node asks others for something and collects the answers, until all are there or it goes on without the rest."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from fedge.net.hub import Hub, Place
from fedge.net.link import DROPPED, Link
from fedge.net.names import Name
from fedge.net.wire import Message


@dataclass(frozen=True)
class Patience:
    """This says how long a node waits for those below it, and how many of them are enough."""

    deadline: float = 600.0  # seconds, from asking on
    quorum: float = 0.5  # part of those asked without which it does not go on
    grace: float = 2.0  # seconds for those that were lost to come back, once the others are enough

    def enough(self, asked: int) -> int:
        """Count how many of those asked are enough: at least one, and at least the quorum."""
        return max(1, math.ceil(self.quorum * asked - 1e-9))

    def until(self, end: float) -> Patience:
        """Return the same with what is left until some time."""
        return replace(self, deadline=max(0.0, end - time.monotonic()))


@dataclass
class Gathered:
    """These are the answers that came, and for each that did not, why."""

    answers: dict[Name, Message] = field(default_factory=dict)
    missing: dict[Name, str] = field(default_factory=dict)


Accept = Callable[[Name, Message], str | None]
"""(who, answer) → why it is refused; None: it counts."""
Asks = Mapping[Name, Message | None]
PASSED = "it is further already"
LOOK = 0.5  # seconds after which a node that waits looks whether it is to stop


class LeavingError(Exception):
    """A node was told to stop while it waited for others."""


def gather(
    hub: Hub, places: Mapping[Name, Place], asks: Asks, patience: Patience, asked: int,
    accept: Accept = lambda name, message: None, pulse: Callable[[float], None] = lambda part: None,
    earlier: Callable[[Name, Link], list[Message]] = lambda name, link: [],
    over: dict[Name, Link | None] | None = None, in_order: bool = False,
) -> Gathered:  # fmt: skip
    """Collect an answer for each place. Who is among `asks` is sent this message (None: nothing), again when it comes
    back; who is not and is lost is missing at once. The quorum is of `asked`.

    `pulse` hears now and then what part is there; `earlier` are messages that go before what is asked over a link.
    `over` keeps, from one gathering to the next, the link over which each was asked; on another one it knows nothing.
    Where rounds come `in_order`, who has sent a later one is missing at once.
    """
    found, sent = Gathered(), {} if over is None else over
    for name in places.keys() - asks.keys() - sent.keys():
        sent[name] = hub.link(name)
    began = time.monotonic()
    alone_since: float | None = None
    while True:
        stamp = hub.changes
        for name in [n for n in places if n not in found.answers and n not in found.missing]:
            passed = in_order and hub.passed(places[name])  # asked first: what comes meanwhile is taken
            _look(hub, name, places[name], asks, sent, found, accept, earlier)
            if passed and name not in found.answers:
                found.missing.setdefault(name, PASSED)
        waiting = [n for n in places if n not in found.answers and n not in found.missing]
        now = time.monotonic()
        lost = all(hub.link(n) is None and hub.was_here(n) for n in waiting)
        alone_since = (alone_since or now) if lost and len(found.answers) >= patience.enough(asked) else None
        end = began + patience.deadline
        if alone_since is not None:
            end = min(end, alone_since + patience.grace)
        if not waiting or now >= end:
            break
        hub.wait(stamp, min(end - now, LOOK))
        pulse(1 - len(waiting) / len(places))
        if hub.leaving:
            raise LeavingError
    for name in waiting:
        found.missing[name] = "it is lost" if hub.link(name) is None else f"nothing came in {patience.deadline:.3g} s"
    if gone := {places[name] for name in found.missing}:
        hub.forget(lambda place: place in gone)
    hub.progress.missing += len(found.missing)
    return found


def _look(
    hub: Hub, name: Name, place: Place, asks: Asks, sent: dict[Name, Link | None], found: Gathered,
    accept: Accept, earlier: Callable[[Name, Link], list[Message]],
) -> None:  # fmt: skip
    """Ask a node where it was not asked yet, and see whether its answer is there."""
    link, ask = hub.link(name), asks.get(name)
    if ask is not None and link is not None and link is not sent.get(name):
        for message in (*earlier(name, link), ask):
            link.send(message)
        sent[name] = link
    if (answer := hub.take(place)) is None:
        if name not in asks and (link is None or link is not sent[name]):
            found.missing[name] = "it was lost in the middle of its steps"
        return
    if (problem := accept(name, answer)) is None:
        found.answers[name] = answer
        return
    found.missing[name] = problem
    if link is not None:
        link.send(Message(DROPPED, hub.me, name, place.round, place.edge_round, place.step,
                          facts={"kind": answer.kind, "reason": problem}))  # fmt: skip
