"""The part of a kubelet that the API server needs to serve logs of pods."""

from __future__ import annotations

import ssl
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class Kubelet:
    """A server that responds to each log request with `text`. A request that follows the log also gets each
    line in the queue `more`, until a None.
    """

    def __init__(self, folder: Path, text: str) -> None:
        self.more: Queue[str | None] = Queue()
        self.requests: list[tuple[str, dict[str, list[str]]]] = []
        kubelet = self

        class LogHandler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                query = parse_qs(parts.query)
                kubelet.requests.append((parts.path, query))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(text.encode())
                self.wfile.flush()
                while query.get("follow") == ["true"] and (line := kubelet.more.get(timeout=60)) is not None:
                    self.wfile.write(line.encode())
                    self.wfile.flush()

            def log_message(self, *_: object) -> None:
                """Suppress the server's own log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), LogHandler)
        self.port = self._server.server_address[1]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(_certificate(folder))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def status(self) -> dict[str, Any]:
        """Return the status of a Node that has this kubelet."""
        return {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
        }

    def end(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()


def _certificate(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kubelet")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    path = folder / "kubelet.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path
