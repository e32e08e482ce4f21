"""A fleet file says on which machines an experiment runs; what it leaves out is filled in for one machine.

[run]        the keys of `fedge run`
[fleet]      name, and where its processes are unless it is said: host, port, per_process
[cloud]      address, listen
[[edge]]     number, address, listen
[[client]]   clients = "0-19", those of one process
[monitor]    address, listen: for an algorithm without a cloud, who listens to its edges
[quorum]     cloud, edge: the share of those below that is enough at a deadline
[deadline]   cloud, edge: seconds
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedge.core.contract import Algorithm, Direct, Gossip
from fedge.core.topology import Topology
from fedge.data import DATASETS
from fedge.data.cells import consecutive
from fedge.errors import ConfigError
from fedge.experiment.build import make_algorithm, make_model
from fedge.experiment.checks import counted
from fedge.experiment.config import Config
from fedge.experiment.files import read_toml
from fedge.experiment.fleet_tables import ClientTable, DeadlineTable, EdgeTable, FleetFile, Server, read_tables
from fedge.experiment.toml import rows
from fedge.net.fleet import Fleet, Node, Quorum, Tiers, write_numbers
from fedge.net.names import CLOUD, MONITOR, Name, client, edge

MOST_PROCESSES = 8  # of clients on one machine, unless the file says more


def read_fleet(path: Path) -> Fleet:
    """Read a fleet file, whole or the part of one process, or say in one sentence where it is wrong."""
    try:
        return fleet_of(read_toml(path), default_name(path))
    except ConfigError as problem:
        raise ConfigError(f"{path}: {problem}" if str(path) not in str(problem) else str(problem)) from None


def default_name(path: Path) -> str:
    """Name a fleet after its file, in the letters that a certificate may hold."""
    plain = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")
    return plain[:40].strip("-") or "fleet"


def fleet_of(values: Mapping[str, Any], name: str) -> Fleet:
    """Make a fleet of the tables of its file."""
    file = read_tables(values)
    config = Config.of(file.run)
    if missing := counted(config):
        key = min(missing)
        raise ConfigError(f"[run] leaves {key} to be counted in its data; a fleet needs it said: {key} = NUMBER")
    algorithm = algorithm_of(config)
    nodes = _nodes(file, config, algorithm)
    return Fleet(
        name=file.fleet.name or name,
        run=file.run,
        nodes=tuple(nodes),
        deadline=_deadlines(file.deadline, config),
        quorum=Quorum(file.quorum.cloud, file.quorum.edge),
        node=file.fleet.node,
        remembers=algorithm.way.keeps,
    )


def algorithm_of(config: Config) -> Algorithm:
    """Return what a fleet's nodes are to do; the data may lie elsewhere."""
    shape, outputs = (DATASETS[config.data].shape if config.data in DATASETS else (28, 28, 1)), 10
    topology = Topology.of(consecutive(config.clients, config.cells), np.ones(config.clients))
    return make_algorithm(config, topology, make_model(config, shape, outputs))


def _nodes(file: FleetFile, config: Config, algorithm: Algorithm) -> list[Node]:
    exchange, name = algorithm.exchange, config.algorithm
    has_cloud, has_edges = not isinstance(exchange, Gossip), not isinstance(exchange, Direct)
    if file.cloud is not None and not has_cloud:
        raise ConfigError(f"[cloud] has no meaning for {name}, whose edges exchange models with each other; leave it "
                          "out, or write [monitor]")  # fmt: skip
    if file.edge and not has_edges:
        raise ConfigError(f"[[edge]] has no meaning for {name}, whose clients talk to the cloud; leave them out")
    if file.fleet.node is not None:  # the part of one process names only whom that one dials
        return [*([_node(CLOUD, file.cloud)] if file.cloud else []), *(_node(edge(e.number), e) for e in file.edge),
                 *([_node(MONITOR, file.monitor)] if file.monitor else []), *_processes(file, config)]  # fmt: skip
    if file.fleet.port + config.cells + 1 >= 2**16:
        raise ConfigError(f"[fleet] port = {file.fleet.port} leaves too few ports for cells={config.cells}; lower it")
    ports = iter(range(file.fleet.port, 2**16))
    nodes = [_node(CLOUD, file.cloud or Server(), file, next(ports))] if has_cloud else []
    if has_edges:
        given = {e.number: e for e in _edges(file, config)}
        nodes += [_node(edge(d), given.get(d) or Server(), file, next(ports)) for d in range(config.cells)]
    if file.monitor is not None:
        nodes.append(_node(MONITOR, file.monitor, file, next(ports)))
    _one_address_each(nodes)
    return nodes + (_processes(file, config) or _split(config.clients, file.fleet.per_process))


def _node(name: Name, given: Server, file: FleetFile | None = None, port: int = 0) -> Node:
    elsewhere = f"{file.fleet.host}:{port}" if file is not None else None
    return Node((name,), given.address or elsewhere, given.listen)


def _edges(file: FleetFile, config: Config) -> list[EdgeTable]:
    """Return the edges of the file, which are none or all of the run's."""
    numbers = [e.number for e in file.edge]
    for number, count in Counter(numbers).items():
        if number >= config.cells:
            raise ConfigError(f"[[edge]] number = {number} is none of cells={config.cells}, which are numbered from 0")
        if count > 1:
            raise ConfigError(f"[[edge]] number = {number} stands there {count} times; give each edge once")
    if missing := set(range(config.cells)) - set(numbers) if numbers else set():
        raise ConfigError(f"cells={config.cells} needs as many edges; [[edge]] number = {min(missing)} is missing")
    return file.edge


def _processes(file: FleetFile, config: Config) -> list[Node]:
    """Return the processes of clients that the file names; together they host every client once."""
    hosted = Counter(number for one in file.client for number in _numbers(one))
    for number, count in sorted(hosted.items()):
        if number >= config.clients:
            raise ConfigError(f"[[client]] names client {number}; clients={config.clients} are numbered from 0")
        if count > 1:
            raise ConfigError(f"client {number} is named by {count} [[client]]; name it once")
    missing = set(range(config.clients)) - hosted.keys()
    if file.client and missing and file.fleet.node is None:
        raise ConfigError(
            f"client {min(missing)} is named by no [[client]]; each of clients={config.clients} needs one"
        )
    return [Node(tuple(client(number) for number in _numbers(one))) for one in file.client]


def _numbers(one: ClientTable) -> tuple[int, ...]:
    return one.clients  # type: ignore[return-value]  # the validator has read them


def _split(clients: int, per_process: int | None) -> list[Node]:
    size = per_process or -(-clients // MOST_PROCESSES)
    return [Node(tuple(map(client, range(first, min(first + size, clients))))) for first in range(0, clients, size)]


def _one_address_each(nodes: Iterable[Node]) -> None:
    seen: dict[str | None, Node] = {}
    for node in nodes:
        if (other := seen.setdefault(node.address, node)) is not node:
            raise ConfigError(
                f"{other.names[0].words} and {node.names[0].words} have one address, {node.address}; give each its own"
            )


def _deadlines(given: DeadlineTable, config: Config) -> Tiers:
    cloud = 2 * config.edge_rounds * given.edge if given.cloud is None else given.cloud
    if not cloud > given.edge:
        raise ConfigError(
            f"[deadline] cloud = {cloud:g} must be longer than edge = {given.edge:g}: whoever waits for others must "
            "wait longer than they do"
        )
    return Tiers(cloud, given.edge)


def toml_of(fleet: Fleet) -> str:
    """Write a fleet, or the part of one process, as a file that `read_fleet` reads."""
    tables: list[tuple[str, Mapping[str, Any]]] = [
        ("[fleet]", {"name": fleet.name, "node": fleet.node}),
        ("[run]", fleet.run),
        ("[deadline]", fleet.deadline._asdict()),
        ("[quorum]", fleet.quorum._asdict()),
    ]
    for node in fleet.nodes:
        reached = {"address": node.address, "listen": node.listen}
        match node.role:
            case "edge":
                tables.append(("[[edge]]", {"number": node.names[0].number, **reached}))
            case "client":
                tables.append(
                    ("[[client]]", {"clients": write_numbers([n.number for n in node.names]).replace("_", ", ")})
                )
            case role:
                tables.append((f"[{role}]", reached))
    return "\n".join(f"{head}\n{rows(table)}" for head, table in tables)
