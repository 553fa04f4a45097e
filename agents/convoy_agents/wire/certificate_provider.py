"""Certificates that gRPC servers show, and change while they serve."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import grpc

SETTLE_SECONDS = 0.1
"""From when a change is known until it is given to gRPC."""

T = TypeVar("T")


class CertificateProvider(Generic[T]):
    """Of one port. gRPC asks at each handshake, in threads of its own, whether there is something else.

    It frees what it has shown before as it takes something else, while a thread that asked just before may
    still begin its handshake with that: the process ends by SIGSEGV (grpc/grpc#36693). So it is told of a
    change alone, and after a moment: nobody else comes past its lock meanwhile, and who is past it is done.
    """

    def __init__(
        self, current: Callable[[], T], configuration: Callable[[T], grpc.ServerCertificateConfiguration]
    ) -> None:
        """`current`: what is to be shown, equal as long as it is the same; `configuration`: that in gRPC's
        words.
        """
        self._current = current
        self._configuration = configuration
        self._lock = threading.Lock()
        self._shown = current()

    def credentials(self, *, clients: bool) -> grpc.ServerCredentials:
        """For the port; `clients` says whether callers have to show certificates of their own."""
        first = self._configuration(self._shown)
        return grpc.dynamic_ssl_server_credentials(
            first,
            self.poll,  # type: ignore[arg-type]  # its stubs do not know that None is no change
            require_client_authentication=clients,
        )

    def poll(self) -> grpc.ServerCertificateConfiguration | None:
        """What is shown from now on; None where that is what was shown before."""
        with self._lock:
            current = self._current()
            if current == self._shown:
                return None
            configuration = self._configuration(current)
            time.sleep(SETTLE_SECONDS)
            self._shown = current
            return configuration
