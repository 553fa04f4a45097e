"""The certificate authority (CA) of the hub and the agents. Its key is in a Secret, its certificate in a
ConfigMap.

The operator creates the CA at its first start, unless the Secret already exists. It does not create the CA
if another program, such as cert-manager, is configured to do that.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from convoy_agents.wire import slot_tokens
from convoy_agents.wire.slot_tokens import PrivateKey, PublicKey, SlotToken
from convoy_controllers.resources import CONFIG_MAPS, SECRETS
from convoy_crds.terms import CA_CONFIG_MAP, CA_SECRET, HUB_SERVER_NAME, agent_names
from convoy_operator import errors
from convoy_operator.gateway import ApiGateway, Object

log = structlog.get_logger(__name__)

KEY_BYTES = 32
"""Number of bytes of an incarnation's key."""
_CA_YEARS = 10
_BACKDATE = timedelta(minutes=5)
"""Time by which the start of a certificate's validity precedes its creation. This is needed because the
clocks of nodes differ.
"""
_MAX_COMMON_NAME = 64
"""Maximum number of characters of a common name in X.509. A longer name is left out, because the subject
alternative name also identifies the node.
"""


class BadRequest(ValueError):
    """Raised for an invalid certificate signing request. The message names the fault."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key and its certificate, both in PEM."""

    key_pem: bytes
    certificate_pem: bytes


class Authority:
    """A certificate authority. It signs certificates and slot tokens, and derives incarnations' keys."""

    def __init__(self, identity: Identity) -> None:
        """Load the CA.

        Raises ValueError if the certificate is not a CA's, if the key does not belong to it, or if the key
        cannot sign.
        """
        self._certificate = x509.load_pem_x509_certificate(identity.certificate_pem)
        key = serialization.load_pem_private_key(identity.key_pem, None)
        if not isinstance(key, PrivateKey):
            raise ValueError("the CA's key must be RSA, ECDSA or Ed25519")
        self._key = key
        self.certificate_pem = identity.certificate_pem
        constraints = self._certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        if not constraints.value.ca:
            raise ValueError("the certificate is not a CA's")
        if key.public_key() != self._certificate.public_key():
            raise ValueError("the key does not belong to the CA's certificate")
        self.key_id = slot_tokens.key_id(key.public_key())
        self.sign_slot_token(SlotToken("", 0, 0, ""))

    @property
    def ends(self) -> datetime:
        """Return the expiry of the CA's own certificate."""
        return self._certificate.not_valid_after_utc

    def server(self, life: timedelta, now: datetime | None = None) -> Identity:
        """Return a new key with a server certificate for the hub's ports."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(
            key.public_key(), HUB_SERVER_NAME, [HUB_SERVER_NAME], [ExtendedKeyUsageOID.SERVER_AUTH], life, now
        )
        return Identity(_pem(key), certificate.public_bytes(serialization.Encoding.PEM))

    def agent(
        self, csr_pem: bytes, node: str, life: timedelta, now: datetime | None = None
    ) -> tuple[bytes, datetime]:
        """Return a certificate in PEM for the agent on `node`, and the expiry of the certificate.

        Only the public key is read from the signing request. The hub decides everything else in the
        certificate.

        Raises BadRequest if the request is invalid or its key is too weak.
        """
        try:
            request = x509.load_pem_x509_csr(csr_pem)
            valid = request.is_signature_valid
            key = request.public_key()
        except (ValueError, InvalidSignature, TypeError) as error:
            raise BadRequest(f"not a certificate signing request: {error}") from None
        if not valid:
            raise BadRequest("the request is not signed by its own key")
        if not isinstance(key, PublicKey) or not _acceptable(key):
            raise BadRequest("the key must be ECDSA P-256 or P-384, Ed25519, or RSA of at least 2048 bits")
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        certificate = self._sign(key, node, agent_names(node), uses, life, now)
        return certificate.public_bytes(serialization.Encoding.PEM), certificate.not_valid_after_utc

    def sign_slot_token(self, slot_token: SlotToken) -> str:
        """Return a signed slot token. Agents accept it as proof that a node has a slot of a job.

        Raises ValueError if the key cannot sign tokens.
        """
        return slot_tokens.sign(slot_token, self._key)

    def incarnation_key(self, job_uid: str, incarnation: int) -> bytes:
        """Return the secret of a job's incarnation. All replicas of the hub derive the same one, so a new
        leader hands out the same secret.
        """
        return self._derive(f"convoy incarnation key\0{job_uid}\0{incarnation}")

    def job_key(self, job_uid: str) -> bytes:
        """Return the secret of a job, which outlasts its incarnations. All replicas of the hub derive the
        same one.
        """
        return self._derive(f"convoy job key\0{job_uid}")

    def _derive(self, purpose: str) -> bytes:
        secret = self._key.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=purpose.encode()).derive(secret)

    def _sign(
        self,
        key: PublicKey,
        common_name: str,
        names: list[str],
        uses: list[x509.ObjectIdentifier],
        life: timedelta,
        now: datetime | None,
    ) -> x509.Certificate:
        now = now or datetime.now(UTC)
        # Add no authority key identifier. A renewed CA may have the same key and a different identifier, and
        # certificates with the old identifier would then be rejected.
        fits = len(common_name) <= _MAX_COMMON_NAME
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if fits else []
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name(subject))
            .issuer_name(self._certificate.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BACKDATE)
            .not_valid_after(min(now + life, self._certificate.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=not subject
            )
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .sign(self._key, _digest(self._key))
        )


def make_authority(now: datetime | None = None) -> Identity:
    """Return a new self-signed CA."""
    now = now or datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "convoy-ca")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + timedelta(days=365 * _CA_YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_CA_USES, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Identity(_pem(key), certificate.public_bytes(serialization.Encoding.PEM))


_CA_USES = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


async def load_or_make(gateway: ApiGateway, namespace: str, *, may_make: bool = True) -> Authority:
    """Return the CA of this installation, and create it if it does not exist and `may_make` is True. If
    several replicas start together, all use the Secret that is created first.

    Raises errors.NotFound if there is no Secret and `may_make` is False, any other errors.ApiError if a
    request fails, and ValueError if the Secret holds no CA.
    """
    try:
        secret = await gateway.get(SECRETS, namespace, CA_SECRET)
    except errors.NotFound:
        if not may_make:
            raise
        secret = await _create(gateway, namespace)
    data = secret.get("data") or {}
    try:
        identity = Identity(base64.b64decode(data["tls.key"]), base64.b64decode(data["tls.crt"]))
    except KeyError as missing:
        raise ValueError(f"Secret {namespace}/{CA_SECRET} lacks {missing}") from None
    authority = Authority(identity)
    await gateway.apply(
        CONFIG_MAPS,
        namespace,
        CA_CONFIG_MAP,
        {
            "metadata": {"name": CA_CONFIG_MAP, "namespace": namespace},
            "data": {"ca.crt": authority.certificate_pem.decode()},
        },
    )
    return authority


async def _create(gateway: ApiGateway, namespace: str) -> Object:
    made = make_authority()
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": CA_SECRET, "namespace": namespace},
        "data": {
            "tls.crt": base64.b64encode(made.certificate_pem).decode(),
            "tls.key": base64.b64encode(made.key_pem).decode(),
        },
    }
    try:
        created = await gateway.create(SECRETS, namespace, body)
        log.info("created a certificate authority", secret=f"{namespace}/{CA_SECRET}")
        return created
    except errors.AlreadyExists:
        return await gateway.get(SECRETS, namespace, CA_SECRET)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _acceptable(key: PublicKey) -> bool:
    if isinstance(key, rsa.RSAPublicKey):
        return key.key_size >= 2048
    return isinstance(key, ed25519.Ed25519PublicKey) or key.curve.name in ("secp256r1", "secp384r1")


def _digest(key: object) -> hashes.SHA256 | None:
    """Return the hash algorithm of a signature by this key. Return None for Ed25519, which has a built-in
    one.
    """
    return None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
