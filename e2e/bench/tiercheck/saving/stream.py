"""A plain program that moves random bytes over a link, as the bound of a transfer between two agents. Run it
as `python -m e2e.bench.tiercheck.saving.stream PORT SIZE [IDENTITY AUTHORITY]` at the sending end.
"""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

from tests.integration.agents.harness import Authority

from convoy_crds import terms
from e2e.bench.tiercheck.saving.link import Link
from e2e.cluster import files
from e2e.cluster.run import wait_for

_PIECE = 4 * 2**20
_SECONDS = 60.0
"""Timeout in seconds for each wait."""
_NODE = "stream"
_MODULE = "e2e.bench.tiercheck.saving.stream"


def measure(cable: Link, folder: Path, size: int, port: int, *, tls: bool) -> float:
    """Return the seconds in which a program at the far end sends `size` bytes to this process over one
    connection. `tls`: True for TLS 1.3 with certificates of both ends.

    The receiver reads into one buffer, and neither checks nor keeps the bytes.
    """
    arguments = [str(port), str(size)]
    if tls:
        arguments += [str(one) for one in _certificates(folder)]
    program = [*cable.prefix, sys.executable, "-m", _MODULE, *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(files.CHECKOUT), *sys.path])}
    process = subprocess.Popen(program, env=environment, cwd=files.CHECKOUT)
    try:
        connection = _connection(cable.far, port, process)
        if tls:
            context = _context(ssl.PROTOCOL_TLS_CLIENT, *_certificates(folder))
            connection = context.wrap_socket(connection, server_hostname=terms.agent_server_name(_NODE))
        with connection:
            began = time.monotonic()
            _receive(connection, size)
            seconds = time.monotonic() - began
        process.wait(_SECONDS)
        return seconds
    finally:
        process.kill()
        process.wait()


def _connection(host: str, port: int, process: subprocess.Popen[bytes]) -> socket.socket:
    found: list[socket.socket] = []

    def connected() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"the sending program ended with exit code {process.returncode}")
        try:
            found.append(socket.create_connection((host, port), _SECONDS))
        except ConnectionRefusedError:
            return False
        return True

    wait_for(connected, deadline=_SECONDS, every=0.02, what="sending program")
    return found[0]


def _receive(connection: socket.socket, size: int) -> None:
    buffer, left = memoryview(bytearray(_PIECE)), size
    while left:
        count = connection.recv_into(buffer[: min(left, _PIECE)])
        if not count:
            raise RuntimeError(f"the stream ended {left} bytes too early")
        left -= count


def _certificates(folder: Path) -> tuple[Path, Path]:
    """Return the files with key and certificate, and with the authority. Make them on first use."""
    identity, authority = folder / "stream-identity.pem", folder / "stream-authority.pem"
    if not identity.exists():
        made = Authority().identity(_NODE)
        authority.write_bytes(made.authority)
        identity.write_bytes(made.key + made.certificate)
    return identity, authority


def _context(protocol: int, identity: Path, authority: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(identity)
    context.load_verify_locations(authority)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def main() -> None:
    """Send the bytes to the first client."""
    port, size, *certificates = sys.argv[1:]
    data, left = memoryview(os.urandom(_PIECE)), int(size)
    with socket.create_server(("", int(port))) as server:
        server.settimeout(_SECONDS)
        connection, _ = server.accept()
    connection.settimeout(_SECONDS)
    if certificates:
        context = _context(ssl.PROTOCOL_TLS_SERVER, *map(Path, certificates))
        connection = context.wrap_socket(connection, server_side=True)
    with connection:
        while left:
            count = min(left, _PIECE)
            connection.sendall(data[:count])
            left -= count


if __name__ == "__main__":
    main()
