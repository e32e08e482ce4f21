"""`fedge fleet cloud | edge | client | monitor` plays one role; `fedge fleet up` plays all of them on one machine."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedge.cli.common import Format, Out, Output, folder_of, guarded, importing, stop_request
from fedge.errors import DivergenceError, FleetError, StoppedError
from fedge.fleet.temporary import WITH_PARENT, Temporary
from fedge.net.identity import Credentials

if TYPE_CHECKING:
    from fedge.fleet.nodes import Site

app = typer.Typer()

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="the node's folder, which fedge fleet init made")]
Log = Annotated[Path | None, typer.Option("--log", metavar="FILE", help="append what happens, as lines of JSON")]
Metrics = Annotated[str | None, typer.Option("--metrics", metavar="PORT", help="serve metrics for Prometheus")]
Parent = Annotated[str | None, typer.Option(WITH_PARENT, hidden=True)]
Resume = Annotated[Path | None, typer.Option("--resume", metavar="DIR", help="continue the run in DIR")]


def site_of(folder: Path, *roles: str) -> Site:
    """Read a node's folder."""
    from fedge.experiment.fleet_file import read_fleet
    from fedge.fleet import folders, nodes

    fleet = read_fleet(folder / folders.FILE)
    own = Credentials.load(folder)
    if fleet.node is None:
        raise FleetError(f"{folder / folders.FILE} is a whole fleet's; give the folder of a node, as init made it")
    node = fleet.labelled(fleet.node)
    if node.role not in roles or set(node.names) != set(own.names) or own.run != fleet.name:
        raise FleetError(f"{folder} is that of {', '.join(name.words for name in own.names)} of fleet '{own.run}'; "
                         f"give the folder of a node that is {' or '.join(roles)}")  # fmt: skip
    return nodes.Site(fleet, node, own)


def few_arenas() -> None:
    """Let a node's threads share two pools of memory, where the C library would keep up to eight for each core.

    Messages are made in one thread and freed in another: the pools fill up in turns, and grow for hundreds of rounds.
    """
    arenas_max = -8  # M_ARENA_MAX of malloc.h
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(arenas_max, 2)


@contextlib.contextmanager
def playing(site: Site, log: Path | None, metrics: str | None, parent: str | None) -> Iterator[None]:
    """Be watched while a role is played; gRPC itself says nothing, since whatever it refuses is told in a sentence."""
    from fedge.fleet.up import end_with_parent
    from fedge.net.watched import watched

    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    few_arenas()
    if parent is not None:
        end_with_parent(Temporary.of(parent))
    with watched(site.me, site.status, log, metrics):
        yield


@app.command("cloud")
@app.command("monitor")
def lead_command(
    folder: Folder, out: Out = None, resume: Resume = None, log: Log = None, metrics: Metrics = None,
    parent: Parent = None,
) -> None:  # fmt: skip
    """Lead a fleet, or listen to one that has no cloud; a run that is in --out already is gone on with."""
    with importing():
        from fedge.fleet import folders, nodes
        from fedge.runner import record
        from fedge.view.fleet_tree import FleetTicker
    ticker = FleetTicker()
    with guarded(ticker):
        site = site_of(folder, "cloud", "monitor")
        with playing(site, log, metrics, parent):
            if out is not None and resume is None and record.resumable(Path(out)):
                resume, out = Path(out), None  # whoever starts a service again does so with the same words
            leading = nodes.Leading(site, ticker.follow)
            try:
                result = nodes.lead(leading, site.fleet, out=folder_of(out), resume=resume, listener=ticker,
                                    stop=stop_request())  # fmt: skip
            except StoppedError as problem:
                words = folders.start_words(site.node, str(folder), str(ticker.folder))
                raise problem.continued_by(shlex.join(words)) from None
        print(f"run folder {result.out}")


@app.command("edge")
def edge_command(
    folder: Folder, out: Out = None, log: Log = None, metrics: Metrics = None, parent: Parent = None
) -> None:
    """Be an edge, between clients and the cloud or other edges. --out keeps its own model, and what it remembers."""
    with importing():
        from fedge.fleet import nodes
    with guarded():
        site = site_of(folder, "edge")
        with playing(site, log, metrics, parent):
            nodes.play_edge(site, folder_of(out))


@app.command("client")
def client_command(
    folder: Folder, out: Out = None, log: Log = None, metrics: Metrics = None, parent: Parent = None
) -> None:
    """Be one client, or several of one process. --out keeps what they remember, which is otherwise kept in DIR."""
    with importing():
        from fedge.fleet import nodes
    with guarded():
        site = site_of(folder, "client")
        with playing(site, log, metrics, parent):
            nodes.play_clients(site, folder_of(out))


@app.command("up")
def up_command(
    file: Annotated[Path, typer.Argument(metavar="FLEET.toml", help="which node is where; see docs/fleet.md")],
    out: Out = None,
    resume: Resume = None,
    nodes_folder: Annotated[
        Path | None, typer.Option("--nodes", metavar="DIR", help="folder that init made; default: NAME-nodes, or none")
    ] = None,
    log: Log = None,
    format: Output = Format.text,
) -> None:
    """Run a whole fleet on this machine, and show what it costs beside what was predicted."""
    with importing():
        from fedge.experiment.fleet_file import read_fleet
        from fedge.fleet.up import up
        from fedge.view import terminal
        from fedge.view.fleet_tree import FleetTicker
        from fedge.view.report import write_report
    ticker = FleetTicker()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    few_arenas()
    with guarded(ticker):
        fleet = read_fleet(file)
        try:
            result, account = up(fleet, nodes=nodes_folder, out=folder_of(out), resume=resume, listener=ticker,
                                 stop=stop_request(), log_file=log, told=ticker.follow)  # fmt: skip
        except DivergenceError as problem:
            if format is Format.json and problem.result is not None:
                print(json.dumps(problem.result.to_json()))
            raise
        except StoppedError as problem:
            words = shlex.join([str(file), "--resume", str(ticker.folder)])
            raise problem.continued_by(f"fedge fleet up {words}") from None
        report = write_report(result.out)
        if format is Format.json:
            print(json.dumps(result.to_json() | {"fleet": account.to_json()}))
            return
        places = [f"run folder: {result.out}", f"report: {report}"]
        print("\n".join(["", *account.lines(), "", terminal.ending([result]), *places]))
