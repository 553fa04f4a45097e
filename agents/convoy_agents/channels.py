"""gRPC options of the agent's channels and servers, the agent's TLS identity, and its TLS channels."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import grpc

KEEPALIVE_MS = 10_000
"""Milliseconds between keepalive pings. A dead hub or peer is detected within KEEPALIVE_MS +
KEEPALIVE_TIMEOUT_MS.
"""
KEEPALIVE_TIMEOUT_MS = 5_000
MAX_MESSAGE = 5 * 1024 * 1024
"""Maximum bytes of a gRPC message. The largest messages contain one chunk of a checkpoint and its metadata.
"""

CLIENT_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.enable_retries", 0),
    # Before the agent retries a call, it waits for the pause of its own back-off (backoff.py). gRPC adds its
    # reconnect back-off to this pause, so the two options below are short.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # Despite its name, this option also limits the milliseconds of one connection attempt. gRPC's default is
    # 20 s. If the SYN of an attempt were lost on a broken link, the next attempt would start 20 s later, even
    # if the link is repaired sooner.
    ("grpc.min_reconnect_backoff_ms", 5000),
)
SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    # If the link to a calling agent breaks, the keepalive pings end that agent's pending Prepare call.
    # Without them, the slot for which it called would count as prepared until the call's deadline.
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.so_reuseport", 0),
)


@dataclass(frozen=True, slots=True)
class Identity:
    """This node's client certificate and its private key. The key is never written to disk."""

    node: str
    certificate: bytes
    key: bytes = field(repr=False)
    authority: bytes = field(repr=False)
    expires: float
    """Expiry of the certificate (Unix seconds)."""


def dial(address: str, server_name: str, authority: bytes, identity: Identity | None) -> grpc.aio.Channel:
    """Return a TLS channel to a server whose certificate has the name `server_name`. The channel sends a
    client certificate only if `identity` is given.
    """
    credentials = grpc.ssl_channel_credentials(
        root_certificates=authority,
        private_key=identity.key if identity else None,
        certificate_chain=identity.certificate if identity else None,
    )
    options = [*CLIENT_OPTIONS, ("grpc.ssl_target_name_override", server_name)]
    return grpc.aio.secure_channel(address, credentials, options=options)


class ChannelClosed(Exception):
    """Another task closed the channel: either because the agent's certificate was renewed, or because too
    many channels were open.
    """


@contextlib.contextmanager
def detect_close() -> Iterator[None]:
    """Raise ChannelClosed if another task closes the channel before or during a call inside this context."""
    try:
        yield
    except grpc.aio.UsageError as error:
        raise ChannelClosed("the channel was closed before the call") from error
    except asyncio.CancelledError as error:
        # gRPC raises CancelledError also for a call whose channel was closed, so check whether the task
        # itself was cancelled.
        if (task := asyncio.current_task()) is None or task.cancelling():
            raise
        raise ChannelClosed("the channel was closed during the call") from error
