"""Keeps the listening socket of a serving rank, so that a rank that dies refuses no connection.

A rank sends its socket as soon as it is bound, and the rank that replaces it asks for it. In between, the
kernel completes connections, and they wait in the backlog. A rank that ends as asked drops the socket first.
The idea is the file descriptor store of systemd (sd_pid_notify_with_fds, FDSTORE=1).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

KEEP, GIVE, DROP = b"K", b"G", b"D"
"""Requests of a rank, one byte each: keep the socket that comes with it, give it back, close it."""
DONE, NOTHING = b"1", b"0"
"""Responses: done, and with GIVE the socket comes along; there is no socket."""


class KeptListener:
    """A local service that keeps one listening socket."""

    def __init__(self) -> None:
        self.path = ""
        """Path of the Unix socket on which ranks ask; empty if the service does not run."""
        self._service: socket.socket | None = None
        self._kept: socket.socket | None = None

    def start(self, path: str) -> None:
        """Start the service at a path. If that is impossible, ranks keep their sockets themselves."""
        service = socket.socket(socket.AF_UNIX)
        try:
            service.bind(path)
            service.listen(4)
        except OSError:
            service.close()
            return
        service.setblocking(False)
        self._service, self.path = service, path
        asyncio.get_running_loop().add_reader(service.fileno(), self._accept)

    def close(self) -> None:
        """End the service and close the socket that it keeps."""
        if self._service is not None:
            asyncio.get_running_loop().remove_reader(self._service.fileno())
            self._service.close()
            self._service = None
        self._drop()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            client, _ = self._service.accept()  # type: ignore[union-attr]
            client.setblocking(False)
            asyncio.get_running_loop().add_reader(client.fileno(), self._respond, client)

    def _respond(self, client: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(client.fileno())
        with client, contextlib.suppress(OSError):
            request, descriptors, _, _ = socket.recv_fds(client, 1, 1)
            if request == KEEP and descriptors:
                self._drop()
                self._kept = socket.socket(fileno=descriptors[0])
                client.send(DONE)
            elif request == GIVE and self._kept is not None:
                socket.send_fds(client, [DONE], [self._kept.fileno()])
            else:
                self._drop()
                client.send(NOTHING)

    def _drop(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None
