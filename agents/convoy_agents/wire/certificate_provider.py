"""Server certificates that gRPC can replace without a restart."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import grpc

SETTLE_SECONDS = 0.1
"""Seconds between the detection of a changed certificate and its use by gRPC."""

T = TypeVar("T")


class CertificateProvider(Generic[T]):
    """Provides the server certificate of one port. gRPC calls `poll` at each handshake, from its own
    threads.

    When gRPC receives a new configuration, it frees the previous configuration. Another thread may have
    polled just before and still start a handshake with the freed configuration. The process then dies with
    SIGSEGV (grpc/grpc#36693).

    `poll` therefore returns a configuration only if the certificate has changed, and only after a pause of
    SETTLE_SECONDS. During the pause it holds a lock, so no other thread can finish a poll. Threads that
    polled before have time to start their handshakes with the previous configuration before gRPC frees it.
    """

    def __init__(
        self, current: Callable[[], T], configuration: Callable[[T], grpc.ServerCertificateConfiguration]
    ) -> None:
        """Store the two functions and the current certificate.

        `current` returns the certificate to use; equal values mean that it has not changed. `configuration`
        converts a certificate to gRPC's form.
        """
        self._current = current
        self._configuration = configuration
        self._lock = threading.Lock()
        self._shown = current()

    def credentials(self, *, clients: bool) -> grpc.ServerCredentials:
        """Return the server credentials of the port. If `clients` is True, each client must send a
        certificate.
        """
        first = self._configuration(self._shown)
        return grpc.dynamic_ssl_server_credentials(
            first,
            self.poll,  # type: ignore[arg-type]  # its stubs do not know that None is no change
            require_client_authentication=clients,
        )

    def poll(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the new configuration if the certificate has changed, else None."""
        with self._lock:
            current = self._current()
            if current == self._shown:
                return None
            configuration = self._configuration(current)
            time.sleep(SETTLE_SECONDS)
            self._shown = current
            return configuration
