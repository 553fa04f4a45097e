"""gRPC channels and servers of the agent: one certificate, one certificate authority, one set of options."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import grpc

KEEPALIVE_MS = 10_000
"""A dead hub or peer is noticed within this and KEEPALIVE_TIMEOUT_MS."""
KEEPALIVE_TIMEOUT_MS = 5_000
MAX_MESSAGE = 5 * 1024 * 1024
"""A chunk of a checkpoint and what is said with it."""

CLIENT_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.enable_retries", 0),
    # Our own back-off rules between tries; the channel's must not outlast it.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # The longest that one try to connect may take: a SYN that fell into a cut link would otherwise hold up
    # the next for 20 s, long after the link is whole again.
    ("grpc.min_reconnect_backoff_ms", 5000),
)
SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    # A slot whose call is held and whose link is cut must not count as prepared until its deadline.
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.so_reuseport", 0),
)


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate that speaks for this node, and its key, which is never written anywhere."""

    node: str
    certificate: bytes
    key: bytes = field(repr=False)
    authority: bytes = field(repr=False)
    expires: float
    """Unix seconds."""


def dial(address: str, server_name: str, authority: bytes, identity: Identity | None) -> grpc.aio.Channel:
    """A TLS channel to the holder of `server_name`; without an identity the server learns nothing of ours."""
    credentials = grpc.ssl_channel_credentials(
        root_certificates=authority,
        private_key=identity.key if identity else None,
        certificate_chain=identity.certificate if identity else None,
    )
    options = [*CLIENT_OPTIONS, ("grpc.ssl_target_name_override", server_name)]
    return grpc.aio.secure_channel(address, credentials, options=options)


class ChannelClosed(Exception):
    """The channel was closed, not by who called: another identity or another peer took its place."""


@contextlib.contextmanager
def detect_close() -> Iterator[None]:
    """ChannelClosed for calls that are made meanwhile, when their channel is closed below them or between two."""
    try:
        yield
    except grpc.aio.UsageError as error:
        raise ChannelClosed("the connection was closed before the call") from error
    except asyncio.CancelledError as error:
        # gRPC raises it, too, for a call below which the channel is closed.
        if (task := asyncio.current_task()) is None or task.cancelling():
            raise
        raise ChannelClosed("the connection was closed below the call") from error
