"""Read keys and graphs that people keep in files."""

from __future__ import annotations

import os
import stat
import sys
import tomllib
from pathlib import Path
from typing import Any

from fedge.core.topology import GRAPHS
from fedge.errors import ConfigError, brief
from fedge.experiment.checks import AS_NETWORK

MOST = 2**24  # bytes: links between a thousand servers, each with all others


def is_file(path: Path) -> bool:
    """Tell whether this is an ordinary file: a pipe, a device and a name that cannot be one are none."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long for a name, or with a zero in it
        return False


def read_text(path: Path, what: str) -> str:
    """Read all of a small file; a folder, a pipe or a device is refused before anything waits for it."""
    try:
        place = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(place, "rb") as file:
            if not stat.S_ISREG(os.fstat(place).st_mode):
                raise ConfigError(f"cannot read {what} {path}: it is no ordinary file; give one")
            content = file.read(MOST + 1)
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else problem
        raise ConfigError(f"cannot read {what} {path}: {reason}; give a file that can be read") from None
    if len(content) > MOST:
        raise ConfigError(f"cannot read {what} {path}: it has more than {MOST} bytes; give a smaller file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise ConfigError(f"cannot read {what} {path}: byte {problem.start} is not UTF-8; save it as UTF-8") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Read a file of keys; one that is no TOML, or only just, gets one sentence."""
    text = read_text(path, "the configuration")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"{path} is not valid TOML: it is nested too deeply; write plain key = value lines") from None
    except ValueError as problem:  # also an integer of thousands of digits
        raise ConfigError(f"{path} is not valid TOML: {problem}") from None


def read_links(path: Path) -> str:
    """Read links as "0-1 1-2" from a file with one such as "0 1" or "0,1" per line and comments after #."""
    lines = [line.split("#")[0].replace(",", " ").split()[:2] for line in read_text(path, "the graph").splitlines()]
    return " ".join("-".join(line) for line in lines if line)


def resolve_graph(given: Any) -> Any:
    """Turn a graph from networkx, or a file with one link per line, into links written out; leave the rest as it is."""
    nx = sys.modules.get("networkx")  # whoever has a graph of it has imported it
    if nx is not None and isinstance(given, nx.Graph):
        from fedge.core.graph import require_connected, write_links

        plain = nx.Graph(given.to_undirected())
        plain.remove_edges_from(list(nx.selfloop_edges(plain)))
        places = {node: d for d, node in enumerate(sorted(plain, key=lambda n: (str(type(n)), n)))}
        return write_links(require_connected(nx.relabel_nodes(plain, places))) or "path"  # one server has no links
    if not isinstance(given, str | Path) or given in (*GRAPHS, AS_NETWORK):
        return given
    path = Path(given)
    if is_file(path):
        return read_links(path)
    if "/" in str(given) or path.suffix:
        raise ConfigError(f"graph={brief(given)} is no file; give one with a link such as '0 1' per line, or one of: "
                          f"{', '.join(GRAPHS)}")  # fmt: skip
    return str(given)
