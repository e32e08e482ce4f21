"""Whoever has a certificate of the run's authority is the node that it names; nobody is asked for a password.

    Authority      makes certificates; its key lies with whoever runs the fleet, and on no node
    Credentials    what one node carries: its certificate and key, the authority's certificate, who is revoked
    dial           connect to a node, once its certificate says that it is the one that was meant

Both sides of a connection show their certificates (mutual TLS). A server reads whom it serves from `admit`. Whoever
dials first looks at the server's certificate, and then speaks with the owner of this very certificate only.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedge.errors import FleetError, brief
from fedge.net import certificates, kept
from fedge.net.names import Name

IDENTITY, AUTHORITY, AUTHORITY_KEY = "identity.pem", "authority.pem", "authority-key.pem"
ISSUED, REVOKED = "issued.jsonl", "revoked.txt"
NODE_DAYS, AUTHORITY_DAYS = 90.0, 1825.0
PATIENCE = 10.0  # seconds for a server to show its certificate


def names_of(peer: Any) -> tuple[str, tuple[Name, ...]]:
    """Return the run and the names in a certificate: PEM, or that of the peer in a gRPC context."""
    return certificates.names_in(certificates.read(pem_of(peer)))


def pem_of(peer: Any) -> bytes:
    """Return the certificate that a peer has shown."""
    if isinstance(peer, bytes):
        return peer
    shown = peer.auth_context().get("x509_pem_cert", [])
    if not shown:
        raise FleetError("a peer shows no certificate; every node of a fleet has one")
    return bytes(shown[0])


def read_revoked(path: Path) -> frozenset[str]:
    """Read serial numbers and names of nodes, one a line with comments after #; without the file nobody is revoked."""
    if not path.exists():
        return frozenset()
    words = [line.split("#")[0].strip().lower() for line in kept.read(path).decode(errors="replace").splitlines()]
    for number, word in enumerate(words, 1):
        try:
            if word:
                int(word, 16)
        except ValueError:
            try:
                Name.of(word)
            except FleetError:
                raise FleetError(
                    f"line {number} of {path} is neither a serial number nor a node's name: '{brief(word)}'"
                ) from None
    return frozenset(word for word in words if word)


@dataclass(frozen=True)
class Credentials:
    """This is what one process of a fleet shows, and what it holds against others' certificates."""

    certificate: bytes
    key: bytes = field(repr=False)
    authority: bytes
    folder: Path | None = None

    @cached_property
    def _named(self) -> tuple[str, tuple[Name, ...]]:
        return names_of(self.certificate)

    @property
    def run(self) -> str:
        return self._named[0]

    @property
    def names(self) -> tuple[Name, ...]:
        return self._named[1]

    @classmethod
    def load(cls, folder: Path) -> Credentials:
        """Read a node's folder; a damaged, foreign or expired certificate is told before anybody is dialled."""
        folder = Path(folder)
        both = kept.read_secret(folder / IDENTITY)
        found = cls(both, both, kept.read(folder / AUTHORITY), folder)
        certificate, key = certificates.read(both, folder / IDENTITY), certificates.read_key(both, folder / IDENTITY)
        if certificate.public_key() != key.public_key():
            raise FleetError(f"{folder / IDENTITY} holds a key that is not its certificate's; make the folder anew")
        authority = certificates.read(found.authority, folder / AUTHORITY)
        certificates.require(certificate, authority, certificates.describe(found.names))
        return replace(found, certificate=certificates.text(certificate), key=certificates.key_text(key))

    def save(self, folder: Path, renew: bool = False) -> Credentials:
        """Write a node's folder; certificate and key share a file, so that both are renewed at once."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (renew and (folder / AUTHORITY).exists()):
            kept.write(folder / AUTHORITY, self.authority)
        kept.write(folder / IDENTITY, self.certificate + self.key, 0o600, replace=renew)
        return replace(self, folder=folder)

    def admit(self, peer: Any) -> tuple[Name, ...]:
        """Return the names of a peer (PEM, or a gRPC context) if its certificate is one of this run, valid today."""
        shown = certificates.read(pem_of(peer))
        run, names = certificates.names_in(shown)
        who = certificates.describe(names)
        if run != self.run:
            raise FleetError(f"the certificate of {who} is of run '{run}', and this node is of run '{self.run}'")
        certificates.require(shown, certificates.read(self.authority), who)
        if self.folder is not None:
            revoked = read_revoked(self.folder / REVOKED)  # anew each time: the list may have come a moment ago
            if revoked & {f"{shown.serial_number:x}", *map(str, names)}:
                raise FleetError(f"the certificate of {who} was revoked; whoever runs the fleet may issue another")
        return names

    def require(self, peer: Any, name: Name) -> None:
        """Refuse a peer that is not this node, whatever its messages say."""
        names = self.admit(peer)
        if name not in names:
            raise FleetError(f"a certificate of {certificates.describe(names)} was shown for {name.words}")


@dataclass(frozen=True)
class Authority:
    """This signs the certificates of a run."""

    certificate: bytes
    key: bytes = field(repr=False)
    run: str
    folder: Path | None = None

    @classmethod
    def create(cls, run: str, days: float = AUTHORITY_DAYS) -> Authority:
        key = certificates.new_key()
        made = certificates.issue_authority(run, key, days)
        return cls(certificates.text(made), certificates.key_text(key), run)

    @classmethod
    def load(cls, folder: Path) -> Authority:
        folder = Path(folder)
        key = kept.read_secret(folder / AUTHORITY_KEY)
        certificates.read_key(key, folder / AUTHORITY_KEY)
        own = kept.read(folder / AUTHORITY)
        certificate = certificates.read(own, folder / AUTHORITY)
        certificates.require(certificate, certificate, "the authority")
        return cls(own, key, certificates.run_of(certificate), folder)

    def save(self, folder: Path) -> Authority:
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        kept.write(folder / AUTHORITY_KEY, self.key, 0o600)
        kept.write(folder / AUTHORITY, self.certificate)
        return replace(self, folder=folder)

    def issue(self, names: Name | Sequence[Name], hosts: Iterable[str] = (), days: float = NODE_DAYS) -> Credentials:
        """Make a key and a certificate for a node, or for the clients of one process; it is noted down for revoking."""
        names = (names,) if isinstance(names, Name) else tuple(names)
        key = certificates.new_key()
        signer = certificates.read_key(self.key, "the authority")
        made = certificates.issue(self.run, names, list(hosts), key.public_key(), signer, days)
        if self.folder is not None:
            noted = {"serial": f"{made.serial_number:x}", "names": [str(name) for name in names],
                     "until": made.not_valid_after_utc.isoformat()}  # fmt: skip
            with (self.folder / ISSUED).open("a", encoding="utf-8") as file:
                file.write(json.dumps(noted) + "\n")
        return Credentials(certificates.text(made), certificates.key_text(key), self.certificate)

    def revoke(self, names: Sequence[Name]) -> bytes:
        """Add every certificate issued to these nodes until now to the list of the revoked, and return the list."""
        assert self.folder is not None
        rows = [json.loads(row) for row in kept.read(self.folder / ISSUED).decode().splitlines()]
        serials = {row["serial"]: ", ".join(row["names"]) for row in rows if {*map(str, names)} & {*row["names"]}}
        if not serials:
            raise FleetError(f"no certificate was issued to {certificates.describe(names)}; nothing is revoked")
        path = self.folder / REVOKED
        known = read_revoked(path)
        before = kept.read(path).decode() if path.exists() else "# serial numbers of certificates that are refused\n"
        added = "".join(f"{serial}  # {who}\n" for serial, who in serials.items() if serial not in known)
        kept.write(path, (before + added).encode(), replace=True)
        return kept.read(path)


def server_credentials(own: Credentials) -> Any:
    """Return what a gRPC server shows and asks for; a renewed certificate in its folder is shown from then on."""
    import grpc

    def configuration() -> Any:
        now = own
        if own.folder is not None:
            with suppress(
                FleetError, OSError
            ):  # a folder that is being replaced, or in disorder: go on with what was read
                now = Credentials.load(own.folder)
        return grpc.ssl_server_certificate_configuration([(now.key, now.certificate)], now.authority)

    return grpc.dynamic_ssl_server_credentials(configuration(), configuration, require_client_authentication=True)


def channel_credentials(own: Credentials, server: bytes | None = None) -> Any:
    """Return what a gRPC channel shows; of servers it takes those of the authority, or the one of this certificate."""
    import grpc

    return grpc.ssl_channel_credentials(server or own.authority, own.key, own.certificate)


def channel_options(run: str, server: Name) -> list[tuple[str, str]]:
    """Return the option with which TLS asks for this very node, at whatever address it is."""
    return [("grpc.ssl_target_name_override", certificates.host_name(run, server))]


def dial(address: str, own: Credentials, server: Name, options: Sequence[tuple[str, Any]] = ()) -> Any:
    """Return a channel to a node whose certificate is in order; dial anew when it breaks, for that may be renewed.

    Nobody at the address is an OSError, and somebody else there a FleetError.
    """
    import grpc

    shown = certificate_at(address, own)
    try:
        own.require(shown, server)
    except FleetError as problem:
        raise FleetError(f"{address} is not {server.words} of this run: {problem}") from None
    return grpc.secure_channel(address, channel_credentials(own, shown), [*options, *channel_options(own.run, server)])


def certificate_at(address: str, own: Credentials) -> bytes:
    """Look at the certificate of the server at an address, without trust in it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3  # which shows it before it asks for ours
    context.set_alpn_protocols(["h2"])
    if own.folder is not None:
        context.load_cert_chain(own.folder / IDENTITY)
    host, _, port = address.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), PATIENCE) as plain:
        try:
            with context.wrap_socket(plain) as secure:
                shown = secure.getpeercert(binary_form=True)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            raise ConnectionResetError(f"{address} hung up") from None  # as a server does that is on its way out
        except ssl.SSLError as problem:
            raise FleetError(f"whoever is at {address} is no node of a fleet ({brief(problem.reason)})") from None
    return ssl.DER_cert_to_PEM_cert(shown or b"").encode()
