"""What the roles tell of themselves while they work: to whoever asks for a status, and to the log."""

from __future__ import annotations

import logging

from fedge.net.hub import Hub
from fedge.net.log_file import note
from fedge.net.names import Name


def ended(hub: Hub, index: int, seconds: float) -> None:
    """Note that a node has ended a global round, counted from 0."""
    hub.progress.ended(index, seconds)
    note("round", f"{hub.me.words} has ended round {index + 1}", round=index + 1, seconds=round(seconds, 6))


def without(hub: Hub, name: Name, index: int, reason: str, edge_round: int | None = None) -> None:
    """Note that a node goes on without another one."""
    place = "" if edge_round is None else f", edge round {edge_round + 1}"
    note("missing", f"{hub.me.words} goes on without {name.words} in round {index + 1}{place}: {reason}",
         level=logging.WARNING, round=index + 1, peer=name, reason=reason)  # fmt: skip
