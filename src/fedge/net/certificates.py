"""A certificate of a node names it, as fedge://RUN/ROLE/NUMBER, once for each client where a process hosts several.

    issue       an authority's own certificate, or one that it signs for a node
    names_in    which run a certificate is of, and whom it names
    require     refuse one that another authority signed, or that is not valid today

`cryptography` is imported where it is used, for only a fleet needs it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from fedge.errors import FleetError, brief
from fedge.net.names import ROLES, SINGLE, Name

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

RUN = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_URI = re.compile(rf"fedge://({RUN.pattern})/({'|'.join(ROLES)})/(0|[1-9][0-9]{{0,8}})")
SERVERS = ("cloud", "edge", "monitor")  # others dial these; a certificate of any other role cannot be a server's
SKEW = timedelta(hours=1)  # a clock that is late by less still takes a new certificate for valid
INSTALL = "a fleet needs two packages more: pip install 'fedge[fleet]'"


def require_run(run: str) -> str:
    """Return a run's name if certificates can hold it."""
    if not RUN.fullmatch(run):
        raise FleetError(
            f"'{brief(run)}' cannot name a fleet's run; use at most 40 lower-case letters, digits and hyphens"
        )
    return run


def uri(run: str, name: Name) -> str:
    return f"fedge://{run}/{name.role}/{name.number}"


def host_name(run: str, name: Name) -> str:
    """Return the name that TLS asks a server for: who it must be, wherever it is."""
    return f"{name}.{run}.fedge.internal"


def describe(names: Sequence[Name]) -> str:
    """Name a node in words, and a process with several clients by the first and the last."""
    if len(names) == 1:
        return names[0].words
    numbers = sorted(name.number for name in names)
    return f"{len(numbers)} clients ({numbers[0]} to {numbers[-1]})"


def library() -> Any:
    """Import what makes and reads certificates."""
    try:
        from cryptography import x509
    except ImportError:
        raise FleetError(INSTALL) from None
    return x509


def new_key() -> EllipticCurvePrivateKey:
    library()
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def key_text(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def read_key(text: bytes, place: object) -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(text, None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise FleetError(f"{place} holds no key that can be read; make the folder anew with `fedge fleet init`")
    return key


def text(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def read(given: bytes, place: object = "a peer") -> x509.Certificate:
    """Read a certificate from PEM."""
    try:
        found: x509.Certificate = library().load_pem_x509_certificate(given)
    except ValueError:
        raise FleetError(f"{place} holds no certificate that can be read") from None
    return found


def issue_authority(run: str, key: EllipticCurvePrivateKey, days: float) -> x509.Certificate:
    """Make the certificate of an authority, which signs itself and no other authority."""
    x509 = library()
    public = key.public_key()
    builder = _begun(f"fedge {require_run(run)}", f"fedge {run}", public, days)
    return (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(key, _hash())
    )


def run_of(authority: x509.Certificate) -> str:
    """Return the run whose certificates an authority signs."""
    return require_run(authority.subject.rfc4514_string().removeprefix("CN=fedge "))


def issue(
    run: str,
    names: Sequence[Name],
    hosts: Sequence[str],
    public: Any,
    signer: EllipticCurvePrivateKey,
    days: float,
) -> x509.Certificate:
    """Make the certificate of a node: its names as URIs, and as host names for the TLS of those that dial it."""
    x509 = library()
    from cryptography.x509.oid import ExtendedKeyUsageOID

    role, *others = {name.role for name in names}
    if others or len(set(names)) < len(names) or (len(names) > 1 and role != "client"):
        raise FleetError(f"{describe(names)} cannot share a certificate; only clients, each once, share a process")
    known = [*map(_host, hosts)] + ([x509.DNSName(host_name(run, names[0]))] if role in SERVERS else [])
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH] + ([ExtendedKeyUsageOID.SERVER_AUTH] if role in SERVERS else [])
    uris = [x509.UniformResourceIdentifier(uri(run, name)) for name in names]
    builder = _begun(str(names[0]), f"fedge {run}", public, days)
    return (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectAlternativeName([*uris, *known]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, _hash())
    )


def _begun(subject: str, issuer: str, public: Any, days: float) -> x509.CertificateBuilder:
    x509 = library()
    from cryptography.x509.oid import NameOID

    now = datetime.now(UTC)
    named = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in (subject, issuer)]
    return (
        x509.CertificateBuilder()
        .subject_name(named[0])
        .issuer_name(named[1])
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + timedelta(days=days))
    )


def _hash() -> Any:
    from cryptography.hazmat.primitives.hashes import SHA256

    return SHA256()


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return library().KeyUsage(
        digital_signature=not signs_certificates, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        content_commitment=False, key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _host(host: str) -> x509.GeneralName:
    x509 = library()
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise FleetError(f"'{brief(host)}' is no name of a machine; use letters of ASCII, or its address") from None


def names_in(certificate: x509.Certificate) -> tuple[str, tuple[Name, ...]]:
    """Return the run that a certificate is of and whom it names; a URI in any other form makes it nobody's."""
    x509 = library()
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        uris = found.value.get_values_for_type(x509.UniformResourceIdentifier)
    except (ValueError, x509.ExtensionNotFound):
        uris = []
    read = [(_URI.fullmatch(one), one) for one in uris]
    if not read:
        raise FleetError("a certificate names no node of a fleet; use one that `fedge fleet init` made")
    runs, names = set(), []
    for match, one in read:
        if match is None or (match[2] in SINGLE and match[3] != "0"):
            raise FleetError(f"a certificate names '{brief(one)}', which is no node of a fleet")
        runs.add(match[1])
        names.append(Name(match[2], int(match[3])))
    if len(runs) > 1 or len(set(names)) < len(names) or (len(names) > 1 and {n.role for n in names} != {"client"}):
        raise FleetError("a certificate names several nodes that are not clients of one run; it can be nobody's")
    return runs.pop(), tuple(names)


def require(certificate: x509.Certificate, authority: x509.Certificate, what: str, now: datetime | None = None) -> None:
    """Refuse a certificate that this authority did not sign, or that is not valid now."""
    from cryptography.exceptions import InvalidSignature

    now = now or datetime.now(UTC)
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        raise FleetError(
            f"the certificate of {what} is of another authority; make both sides' folders with one `fedge fleet init`"
        ) from None
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > end:
        raise FleetError(
            f"the certificate of {what} expired on {end:%Y-%m-%d at %H:%M} UTC; renew it: `fedge fleet init --renew`"
        )
    if now < begin:
        raise FleetError(
            f"the certificate of {what} is valid from {begin:%Y-%m-%d at %H:%M} UTC, which this machine's clock "
            "says is still to come; set the clock"
        )
