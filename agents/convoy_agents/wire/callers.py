"""Identification of the caller of a gRPC call by the certificate that the handshake verified."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import grpc
from cryptography import x509

from convoy_crds import terms

_CACHED = 4096
"""Certificates whose expiry is cached: one for each node of a large cluster."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The agent of a node."""

    node: str
    """Empty if the certificate does not belong to an agent."""
    expires: float
    """Expiry of the certificate (Unix seconds)."""

    def expired(self, now: float | None = None) -> bool:
        """Return True if the certificate has expired. A handshake checks this once, but a connection may
        last longer.
        """
        return (time.time() if now is None else now) >= self.expires


def caller(context: Any) -> Caller:
    """Return the caller of a `grpc.aio.ServicerContext`. A caller without a certificate has no node and is
    expired.
    """
    shown = context.auth_context()
    suffix = terms.agent_server_name("")
    names = [name.decode(errors="replace") for name in shown.get("x509_subject_alternative_name") or ()]
    nodes = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    pem = shown.get("x509_pem_cert")
    return Caller(nodes[0] if len(nodes) == 1 else "", _expires(pem[0]) if pem else 0.0)


def node_of(context: Any) -> str:
    """Return the caller's node; empty if the caller is not an agent or its certificate has expired."""
    found = caller(context)
    return "" if found.expired() else found.node


async def agent_of(context: Any) -> str:
    """Return the caller's node. Abort with UNAUTHENTICATED if the caller is not an agent or its certificate
    has expired.
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
