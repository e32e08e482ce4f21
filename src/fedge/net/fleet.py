"""This is a fleet on paper: which processes there are, where each is reached, and how long one waits for another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from fedge.errors import FleetError
from fedge.net.names import OPERATOR, Name


class Tiers(NamedTuple):
    """This is a number for each tier that waits for another."""

    cloud: float
    edge: float


class Quorum(NamedTuple):
    """This is the share of those below it that a tier goes on with at its deadline: edges, and clients."""

    cloud: float = 1.0
    edge: float = 1.0


@dataclass(frozen=True)
class Node:
    """A node is one process of a fleet: the cloud, an edge, the monitor, or one client or several."""

    names: tuple[Name, ...]
    address: str | None = None  # where others dial it; clients and the operator are dialled by nobody
    listen: str | None = None  # what it listens at, where that is another address

    @property
    def role(self) -> str:
        return self.names[0].role

    @property
    def label(self) -> str:
        """Return the name of its folder."""
        if len(self.names) == 1:
            return str(self.names[0])
        numbers = sorted(name.number for name in self.names)
        written = write_numbers(numbers)
        return f"clients-{written if len(written) <= 60 else f'{numbers[0]}-to-{numbers[-1]}'}"

    @property
    def binds(self) -> str | None:
        return self.listen or self.address


@dataclass(frozen=True)
class Fleet:
    """A fleet has a name, the keys of its run, its nodes, and what its tiers wait for."""

    name: str
    run: Mapping[str, Any]  # as `fedge run` takes them
    nodes: tuple[Node, ...]
    deadline: Tiers  # seconds for a global round, and for an edge round
    quorum: Quorum
    node: str | None = None  # label of the process whose part of the file this is; None: it is the whole
    remembers: bool = False  # clients and edges have a memory that outlives their processes

    def at(self, name: Name) -> Node:
        """Find the process that a node is, or is in."""
        for node in self.nodes:
            if name in node.names:
                return node
        raise FleetError(f"the file of fleet '{self.name}' does not name {name.words}")

    def labelled(self, label: str) -> Node:
        """Find a process by its label, or by the name of a node in it."""
        found = [node for node in self.nodes if node.label == label]
        if not found and label == str(OPERATOR):
            return Node((OPERATOR,))
        return found[0] if found else self.at(Name.of(label))

    def of_role(self, role: str) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.role == role)

    @property
    def cloud(self) -> Node | None:
        return next(iter(self.of_role("cloud")), None)

    @property
    def monitor(self) -> Node | None:
        return next(iter(self.of_role("monitor")), None)

    @property
    def edges(self) -> tuple[Node, ...]:
        return self.of_role("edge")

    @property
    def hosts_of_clients(self) -> tuple[Node, ...]:
        """Return the processes that clients are in."""
        return self.of_role("client")

    def dialled_by(self, node: Node) -> tuple[Node, ...]:
        """Return whom a process may dial: clients their edges, or else the cloud; edges the cloud, or each other."""
        above = self.edges or self.of_role("cloud")
        match node.role:
            case "client":
                return above
            case "edge":
                others = self.of_role("cloud") or tuple(edge for edge in self.edges if edge != node)
                return others + self.of_role("monitor")
            case "cloud":
                return ()
            case _:
                return tuple(other for other in self.nodes if other.address is not None and other != node)

    def part_of(self, node: Node) -> Fleet:
        """Return what a process needs to know: the run, itself, and whom it dials."""
        known = (node, *self.dialled_by(node))
        return replace(self, node=node.label, nodes=tuple(one for one in self.nodes if one in known))


def write_numbers(numbers: list[int]) -> str:
    """Write numbers in ascending order, runs of them by their ends: 0-4_7."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return "_".join("-".join(map(str, run)) for run in runs)
