"""Identifies the caller of a gRPC call by the client certificate that the TLS handshake verified."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import grpc
from cryptography import x509

from convoy_crds import terms

_CACHED = 4096
"""Maximum number of certificates whose expiry is cached. It suffices for one certificate per node of a
large cluster.
"""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a gRPC call, as its client certificate describes it."""

    node: str
    """Name of the node whose agent calls; empty if the certificate does not belong to an agent."""
    expires: float
    """Expiry of the certificate (Unix seconds)."""

    def expired(self, now: float | None = None) -> bool:
        """Return True if the certificate has expired. TLS checks the expiry only in the handshake, but a
        connection may last longer than the certificate.
        """
        return (time.time() if now is None else now) >= self.expires


def caller(context: Any) -> Caller:
    """Return the caller of a `grpc.aio.ServicerContext`. A caller without a certificate gets an empty node
    and counts as expired.
    """
    shown = context.auth_context()
    suffix = terms.agent_server_name("")
    names = [name.decode(errors="replace") for name in shown.get("x509_subject_alternative_name") or ()]
    nodes = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    pem = shown.get("x509_pem_cert")
    return Caller(nodes[0] if len(nodes) == 1 else "", _expires(pem[0]) if pem else 0.0)


def node_of(context: Any) -> str:
    """Return the caller's node name; empty if the caller is not an agent or its certificate has expired."""
    found = caller(context)
    return "" if found.expired() else found.node


async def agent_of(context: Any) -> str:
    """Return the caller's node name. Abort the call with UNAUTHENTICATED if the caller is not an agent or
    its certificate has expired.
    """
    node = node_of(context)
    if not node:
        await context.abort(
            grpc.StatusCode.UNAUTHENTICATED, "the certificate has expired or does not belong to an agent"
        )
    return node


@lru_cache(_CACHED)
def _expires(pem: bytes) -> float:
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()
