"""Nodes have names: the cloud, edge 3, client 17."""

from __future__ import annotations

import re
from typing import NamedTuple

from fedge.errors import FleetError, brief

ROLES = ("cloud", "edge", "client", "monitor", "operator")
SINGLE = ("cloud", "monitor", "operator")  # there is one of each
_NAME = re.compile(r"(cloud|monitor|operator)|(edge|client)-(0|[1-9][0-9]{0,8})")


class Name(NamedTuple):
    """A name is what messages and certificates call a node; a process that hosts several clients has several."""

    role: str
    number: int = 0

    def __str__(self) -> str:
        return self.role if self.role in SINGLE else f"{self.role}-{self.number}"

    @property
    def words(self) -> str:
        """Return the name as people say it."""
        return f"the {self.role}" if self.role in SINGLE else f"{self.role} {self.number}"

    @classmethod
    def of(cls, text: object) -> Name:
        found = _NAME.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise FleetError(
                f"'{brief(text)}' is no name of a node; allowed: cloud, edge-N, client-N, monitor, operator"
            )
        return cls(found[1] or found[2], int(found[3] or 0))


CLOUD, MONITOR, OPERATOR = Name("cloud"), Name("monitor"), Name("operator")


def edge(number: int) -> Name:
    return Name("edge", number)


def client(number: int) -> Name:
    return Name("client", number)
