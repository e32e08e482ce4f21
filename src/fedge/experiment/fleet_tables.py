"""These tables may stand in a fleet file; each value is typed, and refused in one sentence where it cannot be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from fedge.errors import ConfigError, brief, suggestion
from fedge.net.certificates import RUN

PORT = 7400
EDGE_SECONDS = 600.0  # generous: a first round compiles its programs


def _address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    bare = host.startswith("[") == host.endswith("]") and (":" not in host or host.startswith("["))
    if not (colon and host.strip("[]") and bare and re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) < 2**16):
        raise ValueError("an address is written HOST:PORT, as in edge.example.org:7401 or 127.0.0.1:7401")
    return text


def _run_name(text: str) -> str:
    if not RUN.fullmatch(text):
        raise ValueError("a fleet's name has lower-case letters, digits and hyphens, 40 at most")
    return text


def _clients(given: str | int) -> tuple[int, ...]:
    """Read numbers of clients: "0-19", "0-4, 7", 3."""
    found: list[int] = []
    for part in str(given).replace("_", ",").split(","):
        ends = re.fullmatch(r"\s*([0-9]{1,6})\s*(?:-\s*([0-9]{1,6})\s*)?", part)
        if ends is None or int(ends[2] or ends[1]) < int(ends[1]):
            raise ValueError('clients are written as "0-19", "0-4, 7" or 3')
        found += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
    return tuple(found)


Address = Annotated[str, AfterValidator(_address)]
Share = Annotated[float, Field(gt=0, le=1)]
Seconds = Annotated[float, Field(gt=0, le=1e7)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Server(_Table):
    address: Address | None = None
    listen: Address | None = None


class EdgeTable(Server):
    number: int = Field(ge=0, le=10**6)


class ClientTable(_Table):
    clients: Annotated[str | int, AfterValidator(_clients)]


class FleetTable(_Table):
    name: Annotated[str, AfterValidator(_run_name)] | None = None
    host: str = Field("127.0.0.1", min_length=1)
    port: int = Field(PORT, ge=1, le=65_000)
    per_process: int | None = Field(None, ge=1)
    node: str | None = None  # `fedge fleet init` says here whose part of the file this is


class QuorumTable(_Table):
    cloud: Share = 1.0
    edge: Share = 1.0


class DeadlineTable(_Table):
    cloud: Seconds | None = None
    edge: Seconds = EDGE_SECONDS


class FleetFile(_Table):
    run: dict[str, Any]
    fleet: FleetTable = FleetTable()  # type: ignore[call-arg]
    cloud: Server | None = None
    edge: list[EdgeTable] = []
    client: list[ClientTable] = []
    monitor: Server | None = None
    quorum: QuorumTable = QuorumTable()
    deadline: DeadlineTable = DeadlineTable()


KEYS: dict[str, type[BaseModel]] = {
    "": FleetFile,
    "fleet": FleetTable,
    "cloud": Server,
    "edge": EdgeTable,
    "client": ClientTable,
    "monitor": Server,
    "quorum": QuorumTable,
    "deadline": DeadlineTable,
}


def read_tables(values: Mapping[str, Any]) -> FleetFile:
    """Check what a file holds."""
    try:
        return FleetFile(**values)
    except ValidationError as problem:
        raise ConfigError(_sentence(problem.errors()[0])) from None


def _sentence(error: ErrorDetails) -> str:
    """Say which place of the file is wrong, and what may stand there."""
    place = [part for part in error["loc"] if not (isinstance(part, str) and part in ("str", "int"))]
    tables = [str(part) for part in place if isinstance(part, str)]
    count = next((part for part in place if isinstance(part, int)), None)
    key, table = (tables[-1], tables[0]) if tables else ("", "")
    where = f"[[{table}]] #{count + 1} " if count is not None else f"[{table}] "
    where = "" if len(tables) < 2 else where
    match error["type"]:
        case "extra_forbidden":
            known = KEYS["" if len(tables) < 2 else table].model_fields
            return f"{where}has unknown key '{brief(key)}'; allowed: {', '.join(known)}{suggestion(key, known)}".strip()
        case "missing":
            return f"{where}lacks {key}".strip() if where else f"a fleet file needs the table [{key}]"
        case _:
            said = error["msg"].removeprefix("Value error, ")
            return f"{where}{key} = {brief(error['input'])} cannot be: {said[:1].lower()}{said[1:]}"
