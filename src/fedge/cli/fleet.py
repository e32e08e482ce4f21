"""`fedge fleet` runs an experiment as processes on a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedge.cli import fleet_roles
from fedge.cli.common import Format, Output, guarded, importing
from fedge.errors import ConfigError, FleetError
from fedge.net.identity import NODE_DAYS, Credentials
from fedge.net.names import OPERATOR

if TYPE_CHECKING:
    from fedge.net.fleet import Fleet, Node
    from fedge.net.status import Status

app = typer.Typer(no_args_is_help=True, help="Run an experiment as processes, on one machine or on many.")
app.add_typer(fleet_roles.app)

IMAGE = "registry.example.org/fedge:latest"
FleetFile = Annotated[Path, typer.Argument(metavar="FLEET.toml", help="which node is where; see docs/fleet.md")]
Nodes = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="folder; default: NAME-nodes")]


@app.command("init")
def init(
    file: FleetFile,
    out: Nodes = None,
    renew: Annotated[
        list[str] | None, typer.Option("--renew", metavar="NODE", help="a new certificate for a node; all: for each")
    ] = None,
    revoke: Annotated[
        list[str] | None, typer.Option("--revoke", metavar="NODE", help="refuse what was issued to a node until now")
    ] = None,
    days: Annotated[
        float, typer.Option("--days", min=0.01, max=1825, help="how long certificates are valid")
    ] = NODE_DAYS,
) -> None:
    """Make an authority and a folder for each node to carry to its machine; renew or revoke certificates."""
    with guarded():
        with importing():
            from fedge.experiment.fleet_file import read_fleet
            from fedge.fleet import folders
        if renew and revoke:
            raise ConfigError("--renew and --revoke are two things; revoke first, then renew who is to have another")
        fleet = read_fleet(file)
        place = out or folders.default_folder(fleet)
        if revoke:
            changed = folders.revoke(fleet, place, revoke)
            print(f"revoked what was issued to {', '.join(revoke)}; the list is in {len(changed)} folders in {place}:")
            print("copy revoked.txt into each node's folder on its machine; a node reads it at every connection")
        elif renew:
            for folder in folders.renew(fleet, place, renew, days):
                print(f"{folder}: valid until {folders.valid_until(folder)}; copy it over the one on its machine")
        else:
            made = folders.make_folders(fleet, place, days)
            print(f"fleet '{fleet.name}': {len(made)} folders in {place}, certificates valid until "
                  f"{folders.valid_until(made[0])}\n")  # fmt: skip
            print(describe(fleet))
            print(f"\n{place / folders.OWN_AUTHORITY} signs certificates; keep it here or in a safe.\n"
                  "Carry each other folder to its machine (scp -rp keeps its key private).")  # fmt: skip


@app.command("emit")
def emit_command(
    file: FleetFile,
    kubernetes: Annotated[bool, typer.Option("--kubernetes", help="jobs and services")] = False,
    compose: Annotated[bool, typer.Option("--compose", help="a file for docker compose")] = False,
    systemd: Annotated[bool, typer.Option("--systemd", help="a unit for each node")] = False,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="where the files go")] = Path("manifests"),
    image: Annotated[str, typer.Option("--image", help="that has fedge[fleet] in it")] = IMAGE,
    nodes: Annotated[
        Path | None, typer.Option("--nodes", metavar="DIR", help="folder that init made; default: NAME-nodes")
    ] = None,
) -> None:
    """Write a fleet as manifests for Kubernetes, Docker Compose or systemd; none holds a key."""
    with guarded():
        with importing():
            from fedge.experiment.fleet_file import read_fleet
            from fedge.fleet import folders, manifests
        wanted = {"kubernetes": kubernetes, "compose": compose, "systemd": systemd}
        if sum(wanted.values()) != 1:
            raise ConfigError(f"fedge fleet emit writes for one platform; give one of: --{', --'.join(wanted)}")
        fleet = read_fleet(file)
        (platform,) = (name for name, is_wanted in wanted.items() if is_wanted)
        for path in manifests.emit(fleet, platform, out, image, nodes or folders.default_folder(fleet)):
            print(path)


@app.command("status")
def status_command(
    file: FleetFile,
    nodes: Annotated[
        Path | None, typer.Option("--nodes", metavar="DIR", help="folder that init made; default: NAME-nodes")
    ] = None,
    format: Output = Format.text,
) -> None:
    """Ask a running fleet, with the operator's certificate: who is connected, which round, bytes, accuracy."""
    with guarded():
        with importing():
            from fedge.experiment.fleet_file import read_fleet
            from fedge.fleet import folders
            from fedge.net.status import Status
            from fedge.view.fleet_status import status_json, status_text
        fleet = read_fleet(file)
        own = Credentials.load((nodes or folders.default_folder(fleet)) / str(OPERATOR))
        answers = {node.label: answer_of(node, own) for node in fleet.dialled_by(fleet.labelled(str(OPERATOR)))}
        if not any(isinstance(answer, Status) for answer in answers.values()):
            label, why = next(iter(answers.items()))
            raise FleetError(f"no node of fleet '{fleet.name}' answers ({label}: {why}); is it running?")
        print(json.dumps(status_json(answers)) if format is Format.json else status_text(fleet, answers))


def answer_of(node: Node, own: Credentials) -> Status | str:
    """Ask a node; where it does not answer, return why."""
    from fedge.net.status import ask

    try:
        return ask(node.address or "", node.names[0], own)
    except FleetError as problem:
        return str(problem)
    except OSError as problem:
        return f"does not answer at {node.address} ({problem.strerror or problem})"


def describe(fleet: Fleet) -> str:
    """Say for each folder what its process is, where it listens and whom it dials."""
    from fedge.fleet import folders

    rows = []
    for node in folders.every_node(fleet):
        listens = f"listens at {node.binds}" if node.binds else ""
        dials = ", ".join(f"{other.label} at {other.address}" for other in fleet.dialled_by(node)[:3])
        more = len(fleet.dialled_by(node)) - 3
        also = f" and {more} more" if more > 0 else ""
        rows.append((node.label, "; ".join(filter(None, (listens, dials and f"dials {dials}{also}")))))
    width = max(len(label) for label, _ in rows)
    return "\n".join(f"  {label:{width}}  {said}" for label, said in rows)
