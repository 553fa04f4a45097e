"""A rank's side of the launcher's service that keeps its listening socket (`launcher/kept_listener.py`)."""

from __future__ import annotations

import os
import socket

from convoy_crds import terms
from convoy_workloads.launcher.kept_listener import DONE, DROP, GIVE, KEEP

SECONDS = 2.0
"""Time limit of a request. After it, the rank goes on as if there were no such service."""


def keep(listener: socket.socket) -> None:
    """Let the launcher keep a listening socket, for the rank that replaces this one."""
    _request(KEEP, listener)


def fetch(host: str, port: int) -> socket.socket | None:
    """Return the listening socket of the rank that this one replaces; None if none has this address."""
    found = _request(GIVE)
    if found is not None and found.getsockname()[:2] != (host, port):
        found.close()
        return None
    return found


def drop() -> None:
    """Let the launcher close its copy, so that connections are refused as soon as this rank ends."""
    _request(DROP)


def _request(request: bytes, listener: socket.socket | None = None) -> socket.socket | None:
    """Send a request. Return the socket in the response; None if there is none."""
    path = os.environ.get(terms.ENV_KEPT_LISTENER, "")
    if not path:
        return None
    try:
        with socket.socket(socket.AF_UNIX) as service:
            service.settimeout(SECONDS)
            service.connect(path)
            socket.send_fds(service, [request], [listener.fileno()] if listener else [])
            response, descriptors, _, _ = socket.recv_fds(service, 1, 1)
    except OSError:
        return None
    if response != DONE or not descriptors:
        return None
    found = socket.socket(fileno=descriptors[0])
    found.set_inheritable(False)
    return found
