"""A certificate is who a node is: every way of being somebody else is refused in one sentence, on either side."""

import stat
from concurrent import futures
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from fedge.errors import FleetError
from fedge.net import certificates
from fedge.net.identity import (
    IDENTITY,
    REVOKED,
    Authority,
    Credentials,
    channel_credentials,
    channel_options,
    dial,
    names_of,
    server_credentials,
)
from fedge.net.names import CLOUD, OPERATOR, client, edge

grpc = pytest.importorskip("grpc")
x509 = pytest.importorskip("cryptography.x509")


@pytest.fixture(scope="module")
def authority():
    return Authority.create("demo")


@pytest.fixture(scope="module")
def cloud(authority):
    return authority.issue(CLOUD)


def signed(authority, uris, days=1.0):
    """Sign whatever a URI says, as an authority that was talked into it would."""
    key, signer = certificates.new_key(), certificates.read_key(authority.key, "")
    builder = certificates._begun("forged", f"fedge {authority.run}", key.public_key(), days)
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(one) for one in uris])
    return certificates.text(builder.add_extension(names, critical=False).sign(signer, certificates._hash()))


@pytest.mark.parametrize("names", [(CLOUD,), (edge(0),), (client(17),), tuple(map(client, range(200))), (OPERATOR,)])
def test_a_certificate_names_its_node(authority, cloud, names):
    own = authority.issue(names, hosts=["127.0.0.1", "edge.example.org"])
    assert names_of(own.certificate) == ("demo", names) == (own.run, own.names)
    assert cloud.admit(own.certificate) == names


def test_a_folder_is_read_as_it_was_written_and_its_key_is_for_its_owner(authority, tmp_path):
    made = authority.save(tmp_path / "authority").issue(client(3)).save(tmp_path / "client-3")
    again = Credentials.load(tmp_path / "client-3")
    assert (again, again.names) == (made, (client(3),))
    assert Authority.load(tmp_path / "authority").run == "demo"
    for secret in ("client-3/identity.pem", "authority/authority-key.pem"):
        assert stat.S_IMODE((tmp_path / secret).stat().st_mode) == 0o600
    (tmp_path / "client-3" / IDENTITY).chmod(0o644)
    with pytest.raises(FleetError, match=r"others may read it \(mode 0644\); run: chmod 600"):
        Credentials.load(tmp_path / "client-3")
    assert "PRIVATE" not in repr(made) + repr(authority)


def test_a_key_is_never_written_over_unless_it_is_renewed(authority, tmp_path):
    authority.save(tmp_path / "a")
    first = authority.issue(CLOUD).save(tmp_path / "n")
    for again in (
        lambda: Authority.create("demo").save(tmp_path / "a"),
        lambda: authority.issue(CLOUD).save(tmp_path / "n"),
    ):
        with pytest.raises(FleetError, match="exists already and is kept"):
            again()
    assert Credentials.load(tmp_path / "n") == first
    assert Authority.load(tmp_path / "a").key == authority.key
    renewed = authority.issue(CLOUD).save(tmp_path / "n", renew=True)
    assert Credentials.load(tmp_path / "n") == renewed != first
    assert sorted(path.name for path in (tmp_path / "n").iterdir()) == ["authority.pem", "identity.pem"]


def test_a_key_of_another_certificate_is_found_out(authority, tmp_path):
    one, other = authority.issue(CLOUD), authority.issue(CLOUD)
    Credentials(one.certificate, other.key, one.authority).save(tmp_path)
    with pytest.raises(FleetError, match="not its certificate's"):
        Credentials.load(tmp_path)
    with pytest.raises(FleetError, match="is missing; make the folder"):
        Credentials.load(tmp_path / "nowhere")


def test_whom_a_node_does_not_admit(authority, cloud):
    def refusal(shown):
        with pytest.raises(FleetError) as problem:
            cloud.admit(shown)
        return str(problem.value)

    assert "another authority" in refusal(Authority.create("demo").issue(client(1)).certificate)  # of the same name too
    assert "expired on" in refusal(authority.issue(client(1), days=-0.01).certificate)
    assert "is of run 'other'" in refusal(Authority.create("other").issue(client(1)).certificate)
    assert "no certificate that can be read" in refusal(b"a certificate")
    with pytest.raises(FleetError, match="of client 2 was shown for edge 1"):
        cloud.require(authority.issue(client(2)).certificate, edge(1))
    with pytest.raises(FleetError, match=r"of 3 clients \(0 to 2\) was shown for client 3"):
        cloud.require(authority.issue(tuple(map(client, range(3)))).certificate, client(3))


@pytest.mark.parametrize("uris", [
    [], ["https://demo/edge/1"], ["fedge://demo/edge/01"], ["fedge://demo/edge/1/../2"], ["fedge://demo/edge/1?x"],
    ["fedge://demo/king/1"], ["fedge://demo/cloud/1"], ["fedge://demo/edge/1", "fedge://demo/edge/2"],
    ["fedge://demo/edge/1", "fedge://demo/client/2"], ["fedge://demo/client/1", "fedge://other/client/2"],
    ["fedge://demo/client/1", "fedge://demo/client/1"], ["fedge://DEMO/edge/1"], ["fedge://demo/edge/1", "spiffe://x"],
])  # fmt: skip
def test_a_uri_that_is_forged_names_nobody(authority, cloud, uris):
    with pytest.raises(FleetError, match="a certificate names"):
        cloud.admit(signed(authority, uris))


def test_certificates_bear_a_clock_that_is_late(authority):
    shown, issuer = (certificates.read(c) for c in (authority.issue(CLOUD).certificate, authority.certificate))
    now = datetime.now(UTC)
    certificates.require(shown, issuer, "the cloud", now - certificates.SKEW + timedelta(minutes=1))
    with pytest.raises(FleetError, match="still to come; set the clock"):
        certificates.require(shown, issuer, "the cloud", now - certificates.SKEW - timedelta(minutes=1))


def test_what_was_issued_can_be_revoked_and_issued_anew(authority, tmp_path):
    kept, node = authority.save(tmp_path / "a"), authority.issue(CLOUD).save(tmp_path / "n")
    lost, other = kept.issue([client(1), client(2)]), kept.issue(client(3))
    with pytest.raises(FleetError, match="no certificate was issued to client 9"):
        kept.revoke([client(9)])
    (tmp_path / "n" / REVOKED).write_bytes(kept.revoke([client(2)]))
    with pytest.raises(FleetError, match="was revoked"):
        node.admit(lost.certificate)
    assert node.admit(other.certificate) == (client(3),)
    assert node.admit(kept.issue([client(1), client(2)]).certificate)  # what was issued since is good
    (tmp_path / "n" / REVOKED).write_text("client-3  # by its name, whatever is issued\n")
    with pytest.raises(FleetError, match="client 3 was revoked"):
        node.admit(other.certificate)
    (tmp_path / "n" / REVOKED).write_text("\nclient three\n")
    with pytest.raises(FleetError, match=r"line 2 of .* is neither a serial number nor a node's name"):
        node.admit(other.certificate)


@pytest.mark.parametrize("names", [[CLOUD, edge(0)], [edge(0), edge(1)], [client(1), client(1)], [client(0), edge(0)]])
def test_only_clients_share_a_certificate(authority, names):
    with pytest.raises(FleetError, match="cannot share a certificate"):
        authority.issue(names)


@pytest.mark.parametrize("run", ["", "Demo", "a/b", "-a", "a" * 41, "a b"])
def test_a_run_has_a_name_that_certificates_can_hold(run):
    with pytest.raises(FleetError, match="cannot name a fleet's run"):
        Authority.create(run)


class Mirror(grpc.GenericRpcHandler):
    """It answers every call with whom it takes the caller for."""

    def __init__(self, own):
        self.own = own

    def service(self, details):
        def answer(request, context):
            try:
                return " ".join(map(str, self.own.admit(context))).encode()
            except FleetError as problem:
                context.abort(grpc.StatusCode.PERMISSION_DENIED, str(problem))

        return grpc.unary_unary_rpc_method_handler(answer)


@contextmanager
def serving(own):
    server = grpc.server(futures.ThreadPoolExecutor(1), handlers=[Mirror(own)])
    port = server.add_secure_port("127.0.0.1:0", server_credentials(own))
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def asked(channel):
    with channel:
        return channel.unary_unary("/fedge/who")(b"", timeout=20).decode()


def test_both_sides_of_a_connection_show_who_they_are(authority, tmp_path):
    server = authority.issue(edge(1)).save(tmp_path / "edge")
    own = authority.issue([client(4), client(5)]).save(tmp_path / "clients")
    with serving(server) as address:
        assert asked(dial(address, own, edge(1))) == "client-4 client-5"
        with pytest.raises(
            FleetError, match=r"is not edge 2 of this run: a certificate of edge 1 was shown for edge 2"
        ):
            dial(address, own, edge(2))
        with pytest.raises(FleetError, match="of another authority"):
            dial(address, Authority.create("demo").issue(client(4)), edge(1))
        (tmp_path / "edge" / REVOKED).write_text("client-5\n")
        with pytest.raises(grpc.RpcError, match="was revoked"):
            asked(dial(address, own, edge(1)))
        (tmp_path / "clients" / REVOKED).write_text("edge-1\n")
        with pytest.raises(FleetError, match="edge 1 was revoked"):
            dial(address, own, edge(1))
    with pytest.raises(ConnectionError):  # nobody is there any more
        dial(address, own, edge(1))


def test_tls_itself_refuses_whom_the_authority_did_not_sign(authority, cloud):
    stranger = Authority.create("demo").issue(client(1))
    with serving(cloud) as address:
        pairs = [
            (Credentials(stranger.certificate, stranger.key, cloud.authority), CLOUD),  # the server refuses the caller
            (authority.issue(client(1), days=-0.01), CLOUD),
            (stranger, CLOUD),  # the caller refuses the server
            (authority.issue(client(1)), edge(0)),  # which is not the one it asked for
        ]
        for own, name in pairs:
            with pytest.raises(grpc.RpcError):
                asked(grpc.secure_channel(address, channel_credentials(own), channel_options("demo", name)))


def test_a_clients_certificate_cannot_be_a_servers(authority):
    """A client that answers at its edge's address is refused by TLS before any message, even with the edge's name."""
    own = authority.issue(client(1), hosts=[certificates.host_name("demo", edge(1))])
    with serving(own) as address:
        with pytest.raises(FleetError, match="a certificate of client 1 was shown for edge 1"):
            dial(address, authority.issue(client(2)), edge(1))
        with pytest.raises(grpc.RpcError, match="unsupported certificate purpose"):
            asked(
                grpc.secure_channel(
                    address, channel_credentials(authority.issue(client(2))), channel_options("demo", edge(1))
                )
            )


def test_a_certificate_is_renewed_while_its_server_runs(authority, tmp_path):
    server = authority.issue(CLOUD).save(tmp_path)
    own = authority.issue(client(1))
    with serving(server) as address:
        assert asked(dial(address, own, CLOUD)) == "client-1"
        authority.issue(CLOUD).save(tmp_path, renew=True)
        (tmp_path / "later").mkdir()
        reader = authority.issue(client(2)).save(tmp_path / "later")
        (tmp_path / "later" / REVOKED).write_text(f"{certificates.read(server.certificate).serial_number:x}\n")
        assert asked(dial(address, reader, CLOUD)) == "client-2"  # to whom the first certificate is revoked


def test_a_stranger_at_the_address_is_no_node(authority):
    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with pytest.raises((FleetError, ConnectionError)):  # it answers with other words than TLS, or hangs up on ours
        dial(f"127.0.0.1:{port}", authority.issue(client(1)), CLOUD)
    server.stop(0).wait()
