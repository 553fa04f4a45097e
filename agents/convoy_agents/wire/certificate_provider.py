"""Server certificates that gRPC can replace without a restart."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import grpc

SETTLE_SECONDS = 0.1
"""Seconds between the detection of a change and the hand-over to gRPC."""

T = TypeVar("T")


class CertificateProvider(Generic[T]):
    """Provides the certificate of one port. gRPC calls `poll` from its own threads at each handshake.

    When gRPC receives a new configuration, it frees the previous one. Another thread that polled just
    before may still start a handshake with the freed one, and the process then dies with SIGSEGV
    (grpc/grpc#36693). `poll` therefore returns a configuration only after a change, and only after a pause.
    During the pause it holds the lock, so no other thread starts a handshake and earlier ones get past the
    critical point.
    """

    def __init__(
        self, current: Callable[[], T], configuration: Callable[[T], grpc.ServerCertificateConfiguration]
    ) -> None:
        """Store the two functions.

        `current` returns the certificate to show; equal values mean an unchanged certificate.
        `configuration` converts it to gRPC's form.
        """
        self._current = current
        self._configuration = configuration
        self._lock = threading.Lock()
        self._shown = current()

    def credentials(self, *, clients: bool) -> grpc.ServerCredentials:
        """Return the credentials of the port. `clients` requires callers to show certificates."""
        first = self._configuration(self._shown)
        return grpc.dynamic_ssl_server_credentials(
            first,
            self.poll,  # type: ignore[arg-type]  # its stubs do not know that None is no change
            require_client_authentication=clients,
        )

    def poll(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the configuration to use from now on; None if it has not changed."""
        with self._lock:
            current = self._current()
            if current == self._shown:
                return None
            configuration = self._configuration(current)
            time.sleep(SETTLE_SECONDS)
            self._shown = current
            return configuration
