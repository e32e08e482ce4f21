"""What is carried to the machines of a fleet: for each node a folder with its certificate, key and part of the file.

NAME-nodes/authority      signs the certificates; stays with whoever runs the fleet, or in a safe
NAME-nodes/edge-0         identity.pem, authority.pem, fleet.toml, and revoked.txt once somebody was
NAME-nodes/operator       the same for `fedge fleet status`
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path

from fedge.errors import FleetError
from fedge.experiment.fleet_file import toml_of
from fedge.net import certificates, kept
from fedge.net.fleet import Fleet, Node
from fedge.net.identity import IDENTITY, NODE_DAYS, REVOKED, Authority
from fedge.net.names import OPERATOR, Name

OWN_AUTHORITY = "authority"
FILE = "fleet.toml"
ALL = "all"


def default_folder(fleet: Fleet) -> Path:
    return Path(f"{fleet.name}-nodes")


def every_node(fleet: Fleet) -> tuple[Node, ...]:
    return (*fleet.nodes, Node((OPERATOR,)))


def start_words(node: Node, folder: str, out: str | None) -> list[str]:
    """Return the command that starts a node from its folder; one that keeps a model does so in `out`."""
    return ["fedge", "fleet", node.role, folder, *([] if out is None else ["--out", out])]


def make_folders(fleet: Fleet, out: Path, days: float = NODE_DAYS, *, lasting: bool = True) -> list[Path]:
    """Make an authority and a folder for each node, all or nothing; what is there already is kept."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FleetError(
            f"{out} exists already and is kept; give another --out, or renew single nodes in it: --renew NODE"
        )
    partial = out.with_name(f".{out.name}.{secrets.token_hex(4)}.part")
    partial.mkdir(parents=True, mode=0o700)
    try:
        kept.write(partial / ".gitignore", b"*\n")  # keys are not for a repository
        authority = Authority.create(fleet.name)
        if lasting:
            authority = authority.save(partial / OWN_AUTHORITY)
        for node in every_node(fleet):
            _fill(partial, fleet, node, authority, days)
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return [out / node.label for node in every_node(fleet)]


def renew(fleet: Fleet, out: Path, labels: Sequence[str], days: float = NODE_DAYS) -> list[Path]:
    """Issue new certificates to nodes, also to those new in the file, each with its part of the file as it is now."""
    authority = _authority_of(fleet, out)
    nodes = every_node(fleet) if ALL in labels else [fleet.labelled(label) for label in labels]
    for node in nodes:
        _fill(out, fleet, node, authority, days)
    return [out / node.label for node in nodes]


def revoke(fleet: Fleet, out: Path, labels: Sequence[str]) -> list[Path]:
    """Revoke what was issued to nodes, and write the list into each folder; a node that left the file has its name."""
    authority, names = _authority_of(fleet, out), list[Name]()
    for label in labels:
        try:
            names += fleet.labelled(label).names
        except FleetError:
            names.append(Name.of(label))
    revoked = authority.revoke(names)
    folders = [path.parent for path in sorted(out.glob(f"*/{IDENTITY}"))]
    for folder in folders:
        kept.write(folder / REVOKED, revoked, replace=True)
    return folders


def _authority_of(fleet: Fleet, out: Path) -> Authority:
    authority = Authority.load(out / OWN_AUTHORITY)
    if authority.run != fleet.name:
        raise FleetError(f"{out} holds the authority of fleet '{authority.run}', and the file is of '{fleet.name}'")
    return authority


def _fill(out: Path, fleet: Fleet, node: Node, authority: Authority, days: float) -> None:
    folder, hosts = out / node.label, [] if node.address is None else [node.address.rpartition(":")[0].strip("[]")]
    new = not (folder / IDENTITY).exists()
    authority.issue(node.names, hosts, days).save(folder, renew=not new)
    kept.write(folder / FILE, toml_of(fleet.part_of(node)).encode(), replace=not new)
    revoked = out / OWN_AUTHORITY / REVOKED
    if revoked.exists():
        kept.write(folder / REVOKED, kept.read(revoked), replace=not new)


def valid_until(folder: Path) -> str:
    """Return the last day of a node's certificate."""
    return f"{certificates.read(kept.read(folder / IDENTITY)).not_valid_after_utc:%Y-%m-%d}"
