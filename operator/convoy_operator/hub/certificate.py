"""The hub's server certificate. It is kept only in memory and is renewed before it expires."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import grpc
from cryptography import x509

from convoy_agents.wire.certificate_provider import CertificateProvider
from convoy_operator.hub.ca import Authority

LIFE = timedelta(days=90)


class ServerCertificate:
    """The server certificate of one replica.

    gRPC requests the certificate at each handshake, from threads of its own. Each agent makes a handshake
    at least once in the lifetime of its own certificate.
    """

    def __init__(
        self,
        authority: Authority,
        on_renewed: Callable[[float], object],
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`on_renewed` is called with the expiry of each new certificate in Unix seconds."""
        self._authority = authority
        self._on_renewed = on_renewed
        self._clock = clock
        self._lock = threading.Lock()
        self._make()

    def credentials(self, *, clients: bool) -> grpc.ServerCredentials:
        """Return the credentials of a port. If `clients` is True, clients must present a certificate of the
        CA.
        """
        roots = self._authority.certificate_pem if clients else None

        def configuration(pair: tuple[bytes, bytes]) -> grpc.ServerCertificateConfiguration:
            return grpc.ssl_server_certificate_configuration([pair], root_certificates=roots)

        return CertificateProvider(self.pair, configuration).credentials(clients=clients)

    def pair(self) -> tuple[bytes, bytes]:
        """Return the key and the certificate chain in PEM. Renew both after half of their lifetime, but
        never beyond the end of the CA's certificate.
        """
        with self._lock:
            half = self._clock() + LIFE / 2
            if self._ends < min(half, self._authority.ends):
                self._make()
            return self._pair

    def _make(self) -> None:
        made = self._authority.server(LIFE, self._clock())
        self._ends = x509.load_pem_x509_certificate(made.certificate_pem).not_valid_after_utc
        self._pair = (made.key_pem, made.certificate_pem + self._authority.certificate_pem)
        self._on_renewed(self._ends.timestamp())
