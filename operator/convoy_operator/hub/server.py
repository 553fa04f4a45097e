"""The hub's two ports. Enrolment uses TLS with a server certificate, sessions use mutual TLS."""

from __future__ import annotations

import structlog
from grpc import aio

from convoy_agents.wire import hub_pb2_grpc
from convoy_operator.hub.ca import Authority
from convoy_operator.hub.call_limiter import AnonymousCallLimiter
from convoy_operator.hub.certificate import ServerCertificate
from convoy_operator.hub.enrolment import Enrolment
from convoy_operator.hub.sessions import Sessions
from convoy_operator.metrics import Metrics
from convoy_operator.settings import Settings, host_port

log = structlog.get_logger(__name__)

_HELLO_BYTES = 16 * 1024 * 1024
"""Maximum number of bytes of a message in a session. The largest message is a Hello: it contains all pods
of a node and the end of each rank's stderr.
"""
_ENROL_BYTES = 64 * 1024
STREAMS_OF_A_CONNECTION = 8
"""Maximum number of concurrent streams of a connection. An agent needs one stream, but streams that it has
closed may not have ended yet.
"""
_STOP_SECONDS = 1.0
HANDSHAKE_SECONDS = 10.0
"""Timeout of a TLS handshake in seconds. It is short because anyone who reaches a port can start a
handshake.
"""
IDLE_SECONDS = 30.0
"""Seconds after which an enrolment connection without a call is closed. It is short because the client is
not authenticated.
"""

_OPTIONS: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.so_reuseport", 0),
]


class HubServer:
    """The gRPC servers of both ports."""

    def __init__(
        self,
        settings: Settings,
        authority: Authority,
        enrolment: Enrolment,
        sessions: Sessions,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        metrics.certificate_expiry.labels("authority").set(authority.ends.timestamp())
        shown = ServerCertificate(authority, metrics.certificate_expiry.labels("hub").set)
        self._enrolment_credentials = shown.credentials(clients=False)
        self._session_credentials = shown.credentials(clients=True)
        options = [*_OPTIONS, ("grpc.server_handshake_timeout_ms", round(1000 * HANDSHAKE_SECONDS))]
        idle = ("grpc.max_connection_idle_ms", round(1000 * IDLE_SECONDS))
        self._enrolment = aio.server(
            options=[*options, idle, ("grpc.max_receive_message_length", _ENROL_BYTES)],
            interceptors=[AnonymousCallLimiter(lambda: metrics.enrolments.labels("crowded").inc())],
        )
        self._sessions = aio.server(
            options=[
                *options,
                ("grpc.max_receive_message_length", _HELLO_BYTES),
                ("grpc.max_concurrent_streams", STREAMS_OF_A_CONNECTION),
            ]
        )
        hub_pb2_grpc.add_EnrolmentServicer_to_server(enrolment, self._enrolment)
        hub_pb2_grpc.add_HubServicer_to_server(sessions, self._sessions)
        self.enrolment_port = 0
        self.session_port = 0

    async def start(self) -> None:
        """Bind the ports and serve. Raises RuntimeError if a port is in use."""
        # Use `::` by default. gRPC then also binds IPv4, and binding works on a machine without IPv6.
        host = self._settings.hub_bind or "::"
        self.enrolment_port = self._enrolment.add_secure_port(
            host_port(host, self._settings.enrolment_port), self._enrolment_credentials
        )
        self.session_port = self._sessions.add_secure_port(
            host_port(host, self._settings.session_port), self._session_credentials
        )
        await self._enrolment.start()
        await self._sessions.start()
        log.info("hub serves", enrolment=self.enrolment_port, sessions=self.session_port)

    async def stop(self) -> None:
        """Stop both servers. The agents then connect to the next leader."""
        await self._sessions.stop(_STOP_SECONDS)
        await self._enrolment.stop(_STOP_SECONDS)
