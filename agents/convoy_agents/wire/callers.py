"""Who is at the other end of a gRPC call, as the certificate says that the handshake has verified."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import grpc
from cryptography import x509

from convoy_crds import terms

_CACHED = 4096
"""Certificates whose end is remembered: one for each node of a large cluster."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The agent of a node."""

    node: str
    """Empty when the certificate is no agent's."""
    expires: float
    """Unix seconds: when the certificate runs out."""

    def expired(self, now: float | None = None) -> bool:
        """Whether it has run out: a handshake looks at that once, and a connection may last for ever."""
        return (time.time() if now is None else now) >= self.expires


def caller(context: Any) -> Caller:
    """Of a grpc.aio.ServicerContext. Whoever has shown no certificate is nobody, and out of date."""
    shown = context.auth_context()
    suffix = terms.agent_server_name("")
    names = [name.decode(errors="replace") for name in shown.get("x509_subject_alternative_name") or ()]
    nodes = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    pem = shown.get("x509_pem_cert")
    return Caller(nodes[0] if len(nodes) == 1 else "", _expires(pem[0]) if pem else 0.0)


def node_of(context: Any) -> str:
    """The node for which the caller speaks now; empty when it is no agent, or no more."""
    found = caller(context)
    return "" if found.expired() else found.node


async def agent_of(context: Any) -> str:
    """The node for which the caller speaks now. Aborts UNAUTHENTICATED when it is no agent, or no more."""
    node = node_of(context)
    if not node:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the certificate is no agent's, or has run out")
    return node


@lru_cache(_CACHED)
def _expires(pem: bytes) -> float:
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()
