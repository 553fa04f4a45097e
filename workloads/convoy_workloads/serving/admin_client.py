"""Calls an admin route from inside the pod: `python -m convoy_workloads.serving.admin_client METHOD PATH
[BODY]`.
"""

from __future__ import annotations

import argparse
import http.client
import os
import socket
import sys
import tempfile
from pathlib import Path

from convoy_crds import terms
from convoy_workloads.serving.listener import ADMIN_PREFIX, ADMIN_SOCKET

SECONDS = 600.0
"""Time limit of a call. Some routes wait for requests in flight."""


class NoSocket(Exception):
    """Raised if there is not exactly one admin socket. The message says what to do."""


def find() -> Path:
    """Return the path of the serving rank's admin socket. Raises NoSocket if there is not exactly one."""
    named = os.environ.get(terms.ENV_ADMIN_SOCKET)
    if named:
        return Path(named)
    folder = Path(tempfile.gettempdir())
    # A rank that was killed leaves its socket behind.
    found = [path for path in sorted(folder.glob(f"{ADMIN_PREFIX}*/{ADMIN_SOCKET}")) if _listens(path)]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(map(str, found)) or "none"
    raise NoSocket(
        f"there must be one admin socket in {folder}, found {listed}: run this in the pod of slot 0, or set "
        f"{terms.ENV_ADMIN_SOCKET} to the path"
    )


def _listens(path: Path) -> bool:
    """Return True if a server listens on a socket."""
    with socket.socket(socket.AF_UNIX) as one:
        return one.connect_ex(str(path)) == 0


def call(path: Path, method: str, route: str, body: str | None) -> tuple[int, str]:
    """Return the status and the body of a response. Raises OSError if there is none."""
    connection = http.client.HTTPConnection("admin", timeout=SECONDS)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(SECONDS)
    connection.sock.connect(str(path))
    try:
        connection.request(method, route, None if body is None else body.encode())
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def main() -> None:
    """Print the body of the response. The exit code is 1 if the status is not 2xx."""
    parser = argparse.ArgumentParser(prog="convoy_workloads.serving.admin_client", description=__doc__)
    parser.add_argument("method", choices=("GET", "POST", "PATCH", "DELETE"))
    parser.add_argument("path", help="Route, such as /status.")
    parser.add_argument("body", nargs="?", help="JSON.")
    options = parser.parse_args()
    try:
        status, text = call(find(), options.method, options.path, options.body)
    except (NoSocket, OSError) as error:
        raise SystemExit(f"convoy: {error}") from error
    print(text)
    sys.exit(0 if 200 <= status < 300 else 1)


if __name__ == "__main__":
    main()
