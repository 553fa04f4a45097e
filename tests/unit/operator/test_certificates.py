"""Tests of certificates: the requests that are signed, and those that are refused."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import (
    Criticality,
    ExtensionPolicy,
    PolicyBuilder,
    Store,
    VerificationError,
)
from grpc import aio

from convoy_agents.channels import Identity as AgentIdentity
from convoy_agents.channels import dial
from convoy_agents.enrol import signing_request
from convoy_agents.wire import hub_pb2_grpc
from convoy_agents.wire.callers import node_of
from convoy_controllers.resources import SECRETS
from convoy_crds.terms import HUB_SERVER_NAME
from convoy_operator import errors
from convoy_operator.hub.ca import Authority, BadRequest, Identity, _pem, load_or_make, make_authority
from convoy_operator.hub.certificate import ServerCertificate
from convoy_operator.hub.enrolment import _MAX_PEERS, Refused, Throttle, reviewed_node
from convoy_operator.hub.server import HubServer
from convoy_operator.metrics import Metrics
from convoy_operator.settings import Settings

from .conftest import FakeApi

NOW = datetime.now(UTC)
DAY = timedelta(days=1)


def request(key: Any = None, name: str = "impostor") -> bytes:
    key = key or ec.generate_private_key(ec.SECP256R1())
    digest = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    )
    builder = builder.add_extension(
        x509.SubjectAlternativeName([x509.DNSName(HUB_SERVER_NAME)]), critical=False
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return builder.sign(key, digest).public_bytes(serialization.Encoding.PEM)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority(make_authority(NOW))


@pytest.mark.parametrize(
    "key",
    [
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP384R1()),
        ed25519.Ed25519PrivateKey.generate(),
        rsa.generate_private_key(65537, 2048),
    ],
    ids=["P-256", "P-384", "Ed25519", "RSA"],
)
def test_a_certificate_has_the_verified_name_not_the_requested_name(authority: Authority, key: Any) -> None:
    pem, ends = authority.agent(request(key), "node-1", DAY, NOW)
    certificate = x509.load_pem_x509_certificate(pem)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert certificate.subject.rfc4514_string() == "CN=node-1"
    assert names.get_values_for_type(x509.DNSName) == ["node-1.agents.convoy.dev"]
    assert set(uses) == {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
    assert not basic.ca
    assert certificate.public_key() == key.public_key()
    assert ends == certificate.not_valid_after_utc == (NOW + DAY).replace(microsecond=0)
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate_pem))


def test_the_hub_certificate_is_for_servers_only(authority: Authority) -> None:
    certificate = x509.load_pem_x509_certificate(authority.server(DAY).certificate_pem)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert names.get_values_for_type(x509.DNSName) == [HUB_SERVER_NAME]
    assert list(uses) == [ExtendedKeyUsageOID.SERVER_AUTH]


@pytest.mark.parametrize(("off", "believed"), [(0, True), (-299, True), (-301, False)])
def test_an_issued_certificate_is_valid_for_clocks_5_minutes_behind(
    authority: Authority, off: float, believed: bool
) -> None:
    issued = x509.load_pem_x509_certificate(authority.server(DAY, NOW).certificate_pem)
    trusted = x509.load_pem_x509_certificate(authority.certificate_pem)
    ours = ExtensionPolicy.webpki_defaults_ee().may_be_present(
        x509.AuthorityKeyIdentifier, Criticality.AGNOSTIC, None
    )
    there = PolicyBuilder().store(Store([trusted])).time(NOW + timedelta(seconds=off))
    there = there.extension_policies(ca_policy=ExtensionPolicy.webpki_defaults_ca(), ee_policy=ours)
    verifier = there.build_server_verifier(x509.DNSName(HUB_SERVER_NAME))
    if believed:
        assert verifier.verify(issued, [])
    else:
        with pytest.raises(VerificationError):
            verifier.verify(issued, [])


def test_no_certificate_outlives_the_ca(authority: Authority) -> None:
    _, ends = authority.agent(request(), "n", timedelta(days=36500))
    assert ends <= x509.load_pem_x509_certificate(authority.certificate_pem).not_valid_after_utc


def tampered() -> bytes:
    """Return a signing request whose signature does not match its key."""
    der = bytearray(x509.load_pem_x509_csr(request()).public_bytes(serialization.Encoding.DER))
    der[-5] ^= 1
    body = base64.encodebytes(bytes(der)).decode()
    return f"-----BEGIN CERTIFICATE REQUEST-----\n{body}-----END CERTIFICATE REQUEST-----\n".encode()


@pytest.mark.parametrize(
    "csr",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(
            b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----", id="junk"
        ),
        pytest.param(tampered(), id="signed by another key"),
        pytest.param(request(rsa.generate_private_key(65537, 1024)), id="a weak key"),
        pytest.param(request(ec.generate_private_key(ec.SECP521R1())), id="an unusual curve"),
    ],
)
def test_an_invalid_signing_request_is_refused(authority: Authority, csr: bytes) -> None:
    with pytest.raises(BadRequest):
        authority.agent(csr, "n", DAY)


@pytest.mark.parametrize("node", ["n" * 64, ".".join(["n" * 60] * 3)], ids=["fits", "too long"])
async def test_a_node_name_too_long_for_a_common_name_uses_the_dns_name(
    authority: Authority, node: str
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    pem, _ = authority.agent(signing_request(key, node), node, DAY)
    identity = AgentIdentity(node, pem, _pem(key), authority.certificate_pem, 2.0**40)
    assert await meet(authority, authority.server(DAY), identity) == [node]


async def meet(authority: Authority, own: Identity, agent: AgentIdentity) -> list[str]:
    """Let an agent connect to a hub with this certificate. Return the nodes that the hub saw."""
    met: list[str] = []

    class Hub(hub_pb2_grpc.HubServicer):  # type: ignore[misc]  # generated without types
        async def Session(self, requests: Any, context: Any) -> None:
            met.append(node_of(context))

    server = aio.server()
    hub_pb2_grpc.add_HubServicer_to_server(Hub(), server)
    port = server.add_secure_port(
        "127.0.0.1:0",
        grpc.ssl_server_credentials(
            [(own.key_pem, own.certificate_pem)], authority.certificate_pem, require_client_auth=True
        ),
    )
    await server.start()
    try:
        async with dial(f"127.0.0.1:{port}", HUB_SERVER_NAME, agent.authority, agent) as channel:
            assert [
                reply async for reply in hub_pb2_grpc.HubStub(channel).Session(iter(()), timeout=10)
            ] == []
    finally:
        await server.stop(None)
    return met


def test_a_leaf_certificate_is_not_an_authority(authority: Authority) -> None:
    with pytest.raises(ValueError, match="not a CA's"):
        Authority(authority.server(DAY))


def test_a_key_of_another_certificate_is_not_an_authority() -> None:
    with pytest.raises(ValueError, match="does not belong"):
        Authority(Identity(make_authority().key_pem, make_authority().certificate_pem))


async def test_the_ca_is_created_once_and_published(api: FakeApi) -> None:
    first = await load_or_make(api, "sys")
    second = await load_or_make(api, "sys")
    assert first.certificate_pem == second.certificate_pem
    assert api.count("create", "secrets") == 1
    assert api.objects["configmaps", "sys", "convoy-ca"]["data"] == {"ca.crt": first.certificate_pem.decode()}


async def test_replicas_that_start_together_share_one_ca(api: FakeApi) -> None:
    theirs = make_authority()

    def race(verb: str, plural: str, name: str) -> Exception | None:
        if (verb, plural) == ("create", "secrets"):
            body = {
                "metadata": {"name": "convoy-ca"},
                "data": {
                    "tls.crt": base64.b64encode(theirs.certificate_pem).decode(),
                    "tls.key": base64.b64encode(theirs.key_pem).decode(),
                },
            }
            api.put(SECRETS, body, "sys")
        return None

    api.fail = race
    assert (await load_or_make(api, "sys")).certificate_pem == theirs.certificate_pem


def foreign_authority(
    key_id: bytes, form: serialization.PrivateFormat, ends: datetime = NOW + DAY
) -> Identity:
    """Return a CA that another program created. Its certificate may contain any key identifier."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "convoy-ca")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(NOW - DAY).not_valid_after(ends)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    if key_id:
        builder = builder.add_extension(x509.SubjectKeyIdentifier(key_id), critical=False)
    return Identity(
        key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()),
        builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
    )


@pytest.mark.parametrize(
    ("key_id", "form"),
    [
        (b"a digest of its own", serialization.PrivateFormat.PKCS8),
        (b"", serialization.PrivateFormat.TraditionalOpenSSL),
    ],
    ids=["names its key by another digest", "does not name its key"],
)
async def test_certificates_of_a_foreign_ca_are_trusted(
    key_id: bytes, form: serialization.PrivateFormat
) -> None:
    authority = Authority(foreign_authority(key_id, form))
    key = ec.generate_private_key(ec.SECP256R1())
    pem, _ = authority.agent(signing_request(key, "node-1"), "node-1", DAY)
    identity = AgentIdentity("node-1", pem, _pem(key), authority.certificate_pem, 2.0**40)
    met = await meet(authority, authority.server(DAY), identity)
    assert met == ["node-1"]


async def test_the_hub_waits_for_a_ca_made_by_others(api: FakeApi) -> None:
    with pytest.raises(errors.NotFound):
        await load_or_make(api, "sys", may_make=False)
    assert api.count("create", "secrets") == 0
    theirs = make_authority()
    data = {"tls.crt": theirs.certificate_pem, "tls.key": theirs.key_pem, "ca.crt": theirs.certificate_pem}
    encoded = {name: base64.b64encode(text).decode() for name, text in data.items()}
    api.put(SECRETS, {"metadata": {"name": "convoy-ca"}, "data": encoded}, "sys")
    authority = await load_or_make(api, "sys", may_make=False)
    assert authority.certificate_pem == theirs.certificate_pem
    published = api.objects["configmaps", "sys", "convoy-ca"]["data"]
    assert published == {"ca.crt": theirs.certificate_pem.decode()}


@pytest.mark.parametrize("key_id", [b"the key", b"the key by another digest"], ids=["the same", "another"])
async def test_clients_of_the_old_ca_certificate_trust_a_renewal_with_the_same_key(
    key_id: bytes,
) -> None:
    before = foreign_authority(b"the key", serialization.PrivateFormat.PKCS8)
    known = x509.load_pem_x509_certificate(before.certificate_pem)
    key = serialization.load_pem_private_key(before.key_pem, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    basic = known.extensions.get_extension_for_class(x509.BasicConstraints)
    named = x509.Extension(x509.SubjectKeyIdentifier.oid, False, x509.SubjectKeyIdentifier(key_id))
    builder = x509.CertificateBuilder(
        known.issuer, known.subject, known.public_key(), 2, NOW - DAY, NOW + 9 * DAY, [basic, named]
    )
    renewed = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    after, agents_key = Authority(Identity(before.key_pem, renewed)), ec.generate_private_key(ec.SECP256R1())
    pem, _ = Authority(before).agent(signing_request(agents_key, "node-1"), "node-1", DAY)
    identity = AgentIdentity("node-1", pem, _pem(agents_key), before.certificate_pem, 2.0**40)
    assert await meet(after, after.server(DAY), identity) == ["node-1"]


async def test_a_secret_without_a_key_is_named(api: FakeApi) -> None:
    api.put(SECRETS, {"metadata": {"name": "convoy-ca"}, "data": {"tls.crt": ""}}, "sys")
    with pytest.raises(ValueError, match=r"sys/convoy-ca lacks 'tls.key'"):
        await load_or_make(api, "sys")


async def test_without_rights_loading_the_ca_raises_forbidden(api: FakeApi) -> None:
    api.fail = lambda verb, plural, name: errors.Forbidden(403, "no")
    with pytest.raises(errors.Forbidden):
        await load_or_make(api, "sys")


ACCOUNT = "system:serviceaccount:sys:convoy-agent"


def review(**changes: Any) -> dict[str, Any]:
    user = {"username": ACCOUNT, "extra": {"authentication.kubernetes.io/node-name": ["node-1"]}}
    return {"status": {"authenticated": True, "audiences": ["convoy-hub"], "user": user, **changes}}


def test_a_valid_token_identifies_its_node() -> None:
    assert reviewed_node(review(), ACCOUNT) == "node-1"


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({}, id="no status"),
        pytest.param(review(authenticated=False, error="expired"), id="not authenticated"),
        pytest.param(review(audiences=[]), id="no audience: the server may not have checked the audience"),
        pytest.param(review(audiences=["https://kubernetes.default.svc"]), id="another audience"),
        pytest.param(
            review(user={"username": "system:serviceaccount:evil:convoy-agent"}), id="another namespace"
        ),
        pytest.param(review(user={"username": ACCOUNT}), id="not bound to a pod"),
        pytest.param(
            review(
                user={"username": ACCOUNT, "extra": {"authentication.kubernetes.io/node-name": ["a", "b"]}}
            ),
            id="two nodes",
        ),
        pytest.param(
            review(user={"username": ACCOUNT, "extra": {"authentication.kubernetes.io/node-name": ["a b"]}}),
            id="not a node's name",
        ),
    ],
)
def test_an_invalid_token_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        reviewed_node(given, ACCOUNT)


def test_a_client_over_the_limit_does_not_delay_others() -> None:
    now = 0.0
    throttle = Throttle(lambda: now)
    waits = [throttle.reserve(f"ipv4:10.0.0.1:{port}") for port in range(1000, 1200)]
    assert waits[0] == 0 and waits[-1] is None, "another port belongs to the same peer"
    assert throttle.reserve("ipv4:10.0.0.2:1000") == 0
    assert throttle.reserve("ipv6:%5Bfd00::1%5D:1000") == 0
    now = 60.0
    assert throttle.reserve("ipv4:10.0.0.1:1000") == 0


def test_the_number_of_stored_addresses_is_bounded() -> None:
    throttle = Throttle(lambda: 0.0)
    for n in range(_MAX_PEERS + 10):
        throttle.reserve(f"ipv4:10.{n // 256}.{n % 256}.1:1")
    assert len(throttle._buckets) == _MAX_PEERS


async def test_the_hub_reports_the_expiry_of_its_certificates() -> None:
    metrics = Metrics()
    authority = Authority(make_authority(datetime.now(UTC)))
    enrolment, hub = hub_pb2_grpc.EnrolmentServicer(), hub_pb2_grpc.HubServicer()
    HubServer(Settings(), authority, enrolment, hub, metrics)
    left = {
        name: metrics.certificate_expiry.labels(name)._value.get() - datetime.now(UTC).timestamp()
        for name in ("hub", "authority")
    }
    assert 80 * 86_400 < left["hub"] < left["authority"]


@pytest.mark.parametrize(
    ("years", "days", "made"),
    [(10, 44, 1), (10, 46, 2), (10, 400, 9), (0.2, 40, 1), (0.2, 72, 1)],
    ids=["young", "half its life", "for long", "as long as the authority", "near the authority's end"],
)
def test_the_hub_certificate_is_renewed_before_expiry(years: float, days: int, made: int) -> None:
    """Make a handshake on each of `days` days with a CA that is valid for `years` years. The certificate
    must be renewed in time, and `made` certificates must exist in total.
    """
    now = NOW
    ends = NOW.replace(microsecond=0) + timedelta(days=365 * years)
    authority = Authority(foreign_authority(b"", serialization.PrivateFormat.PKCS8, ends))
    expiries: list[float] = []
    shown = ServerCertificate(authority, expiries.append, clock=lambda: now)
    pairs = set()
    for _ in range(days):
        now += timedelta(days=1)
        pairs.add(shown.pair())
        assert now.timestamp() < expiries[-1] <= ends.timestamp()
        if expiries[-1] < ends.timestamp():
            assert expiries[-1] > (now + timedelta(days=30)).timestamp(), "the certificate did not change"
    assert len(pairs) == len(expiries) == made
