"""A tally counts what passes over a node's links: the bytes of tensors (payload), and all else (framing)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple

from fedge.net.names import Name
from fedge.net.wire import Message

LABELS = "labels"  # a tensor of this name is billed on its own, as the ledger does
Tier = str


class Bytes(NamedTuple):
    payload: int = 0
    framing: int = 0

    def __add__(self, other: object) -> Bytes:
        assert isinstance(other, Bytes)
        return Bytes(self.payload + other.payload, self.framing + other.framing)


NO_BYTES = Bytes()
Counts = Mapping[Tier, Mapping[Name, Bytes]]


class Tally:
    """This counts tier by tier and link by link, under the names that the ledger gives to tiers.

    Each link is counted once, by whoever was dialled, in both directions; between edges each counts what it sends.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Tier, dict[Name, Bytes]] = {}

    def add(self, message: Message, framing: int, link: Name) -> None:
        tier, whole = f"{message.sender.role}_to_{message.receiver.role}", message.payload
        labels = message.tensors[LABELS].nbytes if LABELS in message.tensors else 0
        with self._lock:
            _add(self._counts, tier, link, whole - labels, framing)
            if labels:
                _add(self._counts, f"{LABELS}_to_{message.receiver.role}", link, labels, 0)

    def counts(self) -> dict[Tier, dict[Name, Bytes]]:
        with self._lock:
            return {tier: dict(links) for tier, links in self._counts.items()}

    def totals(self) -> dict[Tier, Bytes]:
        return {tier: sum(links.values(), Bytes()) for tier, links in self.counts().items()}


def _add(counts: dict[Tier, dict[Name, Bytes]], tier: Tier, link: Name, payload: int, framing: int) -> None:
    before = counts.setdefault(tier, {}).get(link, NO_BYTES)
    counts[tier][link] = Bytes(before.payload + payload, before.framing + framing)
