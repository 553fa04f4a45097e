"""Obtains and renews the agent's certificate. The agent identifies itself to the hub by its projected
service-account token.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import grpc
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from convoy_agents import metrics
from convoy_agents.backoff import Backoff
from convoy_agents.channels import Identity, dial
from convoy_agents.wire import hub_pb2, hub_pb2_grpc
from convoy_crds import terms
from convoy_crds.shown import error_line

CALL_SECONDS = 10.0
RENEW_AT = 2 / 3
"""Fraction of a certificate's lifetime after which renewal starts. Retries are possible during the
remaining third.
"""
RETRY_CAP = 30.0
MAX_COMMON_NAME = 64
"""Maximum characters of an X.520 common name. A longer node name appears only in the certificate's subject
alternative name.
"""

log = structlog.get_logger()


class EnrolError(Exception):
    """The hub's reply is not a valid certificate for this agent's key and node."""


class Enrolment:
    """Holds the agent's current identity and renews it. The private key exists in memory only."""

    def __init__(self, node: str, hub: str, token_file: Path, ca_file: Path) -> None:
        self._node = node
        self._hub = hub
        self._token_file = token_file
        self._ca_file = ca_file
        self._identity: Identity | None = None
        self._ready = asyncio.Event()

    @property
    def current(self) -> Identity | None:
        """Return the newest identity; None before the first enrolment and after the identity has expired."""
        if self._identity and self._identity.expires <= time.time():
            return None
        return self._identity

    async def ready(self) -> Identity:
        """Wait until the agent has an identity that has not expired, and return the identity."""
        while (identity := self.current) is None:
            self._ready.clear()
            await self._ready.wait()
        return identity

    async def run(self) -> None:
        """Enrol, and renew the identity forever. Retry with exponential back-off after a failure."""
        backoff = Backoff(first=0.5, cap=RETRY_CAP)
        while True:
            try:
                identity = await self.enrol()
            except (grpc.aio.AioRpcError, OSError, ValueError, EnrolError) as error:
                pause = backoff.next()
                metrics.ENROLMENTS.labels("failed").inc()
                log.warning(
                    "enrolment failed", hub=self._hub, why=describe(error), retry_seconds=round(pause, 1)
                )
            else:
                backoff.reset()
                metrics.ENROLMENTS.labels("done").inc()
                metrics.CERTIFICATE_EXPIRY.set(identity.expires)
                log.info("enrolled", node=self._node, expires_unix=int(identity.expires))
                self._identity = identity
                self._ready.set()
                life = identity.expires - time.time()
                pause = life * RENEW_AT * backoff.random.uniform(0.95, 1.0)
            await asyncio.sleep(pause)

    async def enrol(self) -> Identity:
        """Create a key and request a certificate for it from the hub. Return the identity with the key and
        the certificate. Do not retry.

        Raises AioRpcError if the call fails, OSError if the token or CA file cannot be read, and EnrolError
        if the hub's reply is invalid.
        """
        # Read the files at each enrolment, because the kubelet rotates them. They are small and in memory, so
        # the read does not block.
        token, authority = self._token_file.read_text().strip(), self._ca_file.read_bytes()
        if b"BEGIN CERTIFICATE" not in authority:
            # If the file had no certificate, gRPC would trust the image's public authorities instead.
            raise EnrolError(f"{self._ca_file} contains no PEM certificate")
        key = ec.generate_private_key(ec.SECP256R1())
        async with dial(self._hub, terms.HUB_SERVER_NAME, authority, None) as channel:
            request = hub_pb2.EnrolRequest(token=token, csr_pem=signing_request(key, self._node))
            reply: hub_pb2.EnrolReply = await hub_pb2_grpc.EnrolmentStub(channel).Enrol(
                request, timeout=CALL_SECONDS
            )
        _check(reply, key, self._node)
        return Identity(
            node=self._node,
            certificate=reply.certificate_pem,
            key=key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
            authority=authority,
            expires=float(reply.expires_unix),
        )


def signing_request(key: ec.EllipticCurvePrivateKey, node: str) -> bytes:
    """Return a PEM certificate signing request for the agent of `node`."""
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, node)] if len(node) <= MAX_COMMON_NAME else []
    names = x509.SubjectAlternativeName([x509.DNSName(terms.agent_server_name(node))])
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    request = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def describe(error: BaseException) -> str:
    """Return one line that describes an error in the log. For an RPC error the line contains the status
    code and the details.
    """
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return error_line(error)


def _check(reply: hub_pb2.EnrolReply, key: ec.EllipticCurvePrivateKey, node: str) -> None:
    if reply.node != node:
        raise EnrolError(f"the token belongs to node {reply.node!r}, but this agent serves {node!r}")
    if reply.expires_unix <= time.time():
        raise EnrolError("the certificate has already expired: compare the clocks of this node and the hub's")
    certificate = x509.load_pem_x509_certificate(reply.certificate_pem)
    if certificate.public_key() != key.public_key():
        raise EnrolError("the certificate does not match the requested key")
