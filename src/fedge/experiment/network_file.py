"""Read a network as measured from a TOML file, or from a folder with clients.csv, edges.csv and, where there are any,
links.csv, trace.csv and backhaul.csv."""

from __future__ import annotations

import csv
import io
import itertools
from pathlib import Path
from typing import Any

from fedge.cost.network import Network
from fedge.cost.network_tables import TABLES, network_of
from fedge.errors import ConfigError, brief
from fedge.experiment.files import is_file, read_text, read_toml

FILES = (*TABLES, "backhaul")


def read_network(given: str | Path) -> Network:
    path = Path(given)
    if "\0" in str(given) or not (is_file(path) or path.is_dir()):
        raise ConfigError(
            f"network={brief(given)} is no file and no folder in {Path.cwd()}; give a TOML file or a folder of CSV "
            "files, or make one with `fedge network make`"
        )
    tables = _folder(path) if path.is_dir() else read_toml(path)
    return network_of(brief(tables.get("name") or path.stem), tables)


def files_of(path: Path) -> list[Path]:
    """List the files that a network is read from."""
    return [own for name in FILES if is_file(own := path / f"{name}.csv")] or [path]


def _folder(folder: Path) -> dict[str, Any]:
    tables: dict[str, Any] = {path.stem: _rows(path) for path in files_of(folder) if path != folder}
    for name in ("clients", "edges"):
        if name not in tables:
            raise ConfigError(f"network={brief(folder)} has no {name}.csv; a network needs clients.csv and edges.csv")
    if "backhaul" in tables:
        if len(tables["backhaul"]) != 1:
            raise ConfigError(
                f"{folder / 'backhaul.csv'} has {len(tables['backhaul'])} rows below its heading; give one"
            )
        tables["backhaul"] = tables["backhaul"][0]
    return tables


def _rows(path: Path) -> list[dict[str, str]]:
    reader = csv.reader(io.StringIO(read_text(path, "the network")), skipinitialspace=True)
    try:
        lines = [line for line in reader if line and not line[0].startswith("#")]
    except csv.Error as problem:
        raise ConfigError(f"{path} is no CSV file: {problem}") from None
    heading = [word.strip() for word in lines[0]] if lines else []
    for line in lines[1:]:
        if len(line) != len(heading):
            raise ConfigError(
                f"{path} has {len(line)} entries in the row of '{brief(line[0])}', and {len(heading)} in its heading; "
                "give one for each"
            )
    return [{key: word.strip() for key, word in zip(heading, line, strict=True) if word.strip()} for line in lines[1:]]


EXAMPLES = Path(__file__).parent / "networks"


def examples() -> dict[str, str]:
    """Return the example networks by name: each one's text, which says where its numbers come from."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*.toml"))}


def about(text: str) -> str:
    """Return the first sentence of an example: what it is."""
    comment = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
    return " ".join(line.lstrip("# ") for line in comment).partition(". ")[0]
