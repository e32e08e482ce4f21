"""Tables of plain values become a network, or one sentence says where they do not.

A table of clients, one of edges, one of links between edges and one of the times at which clients are on: a TOML file
has them as [[clients]], [[edges]], [[links]], [[trace]], a folder as clients.csv and so on. [backhaul] stands alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedge.cost.availability import Availability
from fedge.cost.network import Both, Client, Edge, Network, Processor
from fedge.errors import ConfigError, brief, suggestion

PROCESSOR = ("cpu_hz", "cycles_per_bit", "step_seconds", "memory_mb")
KEYS = {
    "clients": ("name", "cell", "count", *PROCESSOR, "up_bps", "down_bps", "cloud_up_bps", "cloud_down_bps",
                "on_seconds", "off_seconds", "repeat"),
    "edges": ("name", *PROCESSOR, "up_bps", "down_bps", "backhaul_up_bps", "backhaul_down_bps", "cloud_up_bps",
              "cloud_down_bps"),
    "links": ("from", "to", "bps", "back_bps"),
    "trace": ("client", "on", "off"),
    "backhaul": ("up_bps", "down_bps"),
}  # fmt: skip
TABLES = ("clients", "edges", "links", "trace")
LEAST, MOST = 1e-3, 1e18  # as of the keys of a run: simulated times stay far from what a number can hold
MANY = 10**6  # clients
Row = Mapping[str, Any]
Traces = dict[str, list[tuple[float, float]]]
"""name of a client → when it is on"""


class _Table:
    """This reads the rows of one table, and says in which network and row something is wrong."""

    def __init__(self, network: str, table: str, row: Row, what: str) -> None:
        self.row, self.what = row, f"{what} of network {network}"
        for key in row:
            if key not in KEYS[table]:
                near = suggestion(str(key), KEYS[table])
                raise ConfigError(
                    f"{self.what} has an unknown key '{brief(key)}'; allowed: {', '.join(KEYS[table])}{near}"
                )

    def number(self, key: str, least: float = LEAST, most: float = MOST) -> float | None:
        """Return a number, or None where it is left out."""
        given = self.row.get(key)
        if given is None or given == "":
            return None
        try:
            value = math.nan if isinstance(given, bool) else float(given)
        except (TypeError, ValueError):
            value = math.nan
        if not least <= value <= most:
            raise ConfigError(f"{self.what} has {key}={brief(given)}; give a number from {least:g} to {most:g}")
        return value

    def text(self, key: str) -> str:
        given = self.row.get(key)
        if given is None or isinstance(given, (list, dict)) or not str(given).strip():
            raise ConfigError(f"{self.what} has no {key}; give one")
        return str(given).strip()

    def both(self, prefix: str = "", *, needed: bool = False) -> Both:
        """Return rates up and down; down is as fast as up unless it is given."""
        up, down = (self.number(f"{prefix}{way}_bps") for way in ("up", "down"))
        if up is None and (needed or down is not None):
            raise ConfigError(f"{self.what} has no {prefix}up_bps; give its rate in bit/s")
        up = math.inf if up is None else up
        return Both(up, up if down is None else down)

    def processor(self, *, needed: bool) -> Processor:
        hz, cycles, seconds = self.number("cpu_hz"), self.number("cycles_per_bit"), self.number("step_seconds", 1e-12)
        if hz is not None and seconds is not None:
            raise ConfigError(f"{self.what} has both cpu_hz and step_seconds; give the one that was measured")
        if cycles is not None and hz is None:
            raise ConfigError(f"{self.what} has cycles_per_bit without cpu_hz; give both, or step_seconds")
        if needed and hz is None and seconds is None:
            raise ConfigError(f"{self.what} has neither cpu_hz nor step_seconds; give one of them")
        return Processor(hz, cycles, seconds)

    @property
    def memory(self) -> float:
        megabytes = self.number("memory_mb")
        return math.inf if megabytes is None else 1e6 * megabytes


def network_of(name: str, tables: Mapping[str, Any]) -> Network:
    """Make a network of its tables."""
    for key in tables:
        if key not in (*KEYS, "name"):
            near = suggestion(str(key), KEYS)
            raise ConfigError(f"network {name} has an unknown entry '{brief(key)}'; allowed: {', '.join(KEYS)}{near}")
    rows = {table: _rows(name, table, tables.get(table, [])) for table in TABLES}
    edges = [_edge(_Table(name, "edges", row, _called("an edge", row))) for row in rows["edges"]]
    places = _places(name, "edge", [edge.name for edge in edges])
    traces = _traces(name, rows["trace"])
    named = [_names(_Table(name, "clients", row, _called("a client", row))) for row in rows["clients"]]
    names = [own for _, each in named for own in each]
    if not names:
        raise ConfigError(f"network {name} has no clients; give at least one, as [[clients]] or in clients.csv")
    _places(name, "client", names)
    if unknown := sorted(traces.keys() - {*names}):
        near = suggestion(unknown[0], names)
        raise ConfigError(f"network {name} has a trace of '{brief(unknown[0])}', which is none of its clients{near}")
    clients = [client for table, each in named for client in _clients(table, each, places, traces)]
    if empty := [edge.name for n, edge in enumerate(edges) if n not in {client.cell for client in clients}]:
        raise ConfigError(f"edge '{brief(empty[0])}' of network {name} has no clients; give it some or leave it out")
    backhaul = tables.get("backhaul", {})
    if not isinstance(backhaul, Mapping):
        raise ConfigError(f"network {name} has a backhaul that is no table; write [backhaul] and its keys below")
    shared = _Table(name, "backhaul", backhaul, "the backhaul").both()
    return Network(name, tuple(clients), tuple(edges), shared, _links(name, rows["links"], places))


def _rows(network: str, table: str, given: Any) -> Sequence[Row]:
    if not isinstance(given, list) or not all(isinstance(row, Mapping) for row in given):
        raise ConfigError(
            f"network {network} has {table} that are no tables; write [[{table}]] for each, and its keys below"
        )
    return given


def _called(kind: str, row: Row) -> str:
    given = row.get("name")
    return kind if given is None else f"{kind.split()[-1]} '{brief(given)}'"


def _places(network: str, kind: str, names: list[str]) -> dict[str, int]:
    places: dict[str, int] = {}
    for n, name in enumerate(names):
        if name in places:
            raise ConfigError(f"network {network} has two {kind}s named '{brief(name)}'; give each a name of its own")
        places[name] = n
    return places


def _edge(table: _Table) -> Edge:
    return Edge(
        table.text("name"), table.processor(needed=False), table.both(), table.both("backhaul_"), table.both("cloud_"),
        table.memory,
    )  # fmt: skip


def _names(table: _Table) -> tuple[_Table, list[str]]:
    """Name the clients of a row: one, or `count` alike, which are numbered."""
    name, count = table.text("name"), table.number("count", 1, MANY)
    if count is not None and count != int(count):
        raise ConfigError(f"{table.what} has count={brief(table.row['count'])}; give an integer")
    return table, [name] if count is None else [f"{name}-{n + 1}" for n in range(int(count))]


def _clients(table: _Table, names: list[str], places: Mapping[str, int], traces: Traces) -> list[Client]:
    cell = table.text("cell")
    if cell not in places:
        near = suggestion(cell, places)
        raise ConfigError(f"{table.what} is in cell '{brief(cell)}', and there is no edge of that name{near}")
    processor, rate, far = table.processor(needed=True), table.both(needed=True), table.both("cloud_")
    return [
        Client(name, places[cell], processor, rate, far, table.memory, _availability(table, name, traces))
        for name in names
    ]


def _availability(table: _Table, name: str, traces: Traces) -> Availability | None:
    """Read when a client is on: always, on and off by turns, or as a trace of it says."""
    what, trace = f"client '{brief(name)}'", traces.get(name)
    on, off, repeat = table.number("on_seconds"), table.number("off_seconds", 0), table.number("repeat")
    if trace is not None and (on is not None or off is not None):
        raise ConfigError(f"{table.what} has on_seconds or off_seconds, and a trace too; keep one of both")
    if trace is not None:
        return Availability.of(what, trace, math.inf if repeat is None else repeat)
    if repeat is not None:
        raise ConfigError(f"{table.what} has repeat={repeat:g} and no trace to repeat; leave repeat out")
    if (on is None) != (off is None):
        raise ConfigError(
            f"{table.what} has one of on_seconds and off_seconds; give both, or neither if it is always on"
        )
    return None if on is None or not off else Availability.of(what, [(0.0, on)], on + off)


def _traces(network: str, rows: Sequence[Row]) -> Traces:
    """Read the intervals of each client; one without an end lasts for ever."""
    found: Traces = {}
    for row in rows:
        table = _Table(network, "trace", row, "a trace")
        on, off = table.number("on", 0), table.number("off", 0, math.inf)
        found.setdefault(table.text("client"), []).append((on or 0.0, math.inf if off is None else off))
    return found


def _links(network: str, rows: Sequence[Row], places: Mapping[str, int]) -> dict[tuple[int, int], float]:
    found: dict[tuple[int, int], float] = {}
    for row in rows:
        table = _Table(network, "links", row, "a link")
        ends = [table.text(key) for key in ("from", "to")]
        for end in ends:
            if end not in places:
                raise ConfigError(
                    f"{table.what} ends at '{brief(end)}', and there is no edge of that name{suggestion(end, places)}"
                )
        a, b = (places[end] for end in ends)
        between = f"between '{brief(ends[0])}' and '{brief(ends[1])}'"
        if a == b or (a, b) in found:
            raise ConfigError(f"{table.what} {between} is given twice or joins an edge to itself; leave it out")
        rate = table.number("bps")
        if rate is None:
            raise ConfigError(f"{table.what} {between} has no bps; give its rate")
        found |= {(a, b): rate, (b, a): table.number("back_bps") or rate}
    return found
