"""Keeps the listening socket of a serving rank, so that a rank that dies refuses no connection.

A rank sends its socket as soon as it is bound, and the rank that replaces it asks for it. In between, the
kernel completes connections, and they wait in the backlog. A rank that ends as asked drops the socket first,
and the launcher drops it if no rank asks for it within KEPT_SECONDS.
The idea is the file descriptor store of systemd (sd_pid_notify_with_fds, FDSTORE=1).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat

KEEP, GIVE, DROP = b"K", b"G", b"D"
"""Requests of a rank, one byte each: keep the socket that comes with it, give it back, close it."""
DONE, NOTHING = b"1", b"0"
"""Responses: done, and with GIVE the socket comes along; there is no socket."""
KEPT_SECONDS = 10.0
"""Seconds from the end of a rank for which the socket is kept. Afterwards, clients had better be refused, and
try another replica.
"""
REQUEST_SECONDS = 2.0
"""Seconds from a connection to its request."""
CLIENTS = 8
"""Maximum number of connections without a request."""


class KeptListener:
    """A local service that keeps one listening socket. All methods run on the launcher's event loop."""

    def __init__(self) -> None:
        self.path = ""
        """Path of the Unix socket on which ranks ask; empty if the service does not run."""
        self._service: socket.socket | None = None
        self._kept: socket.socket | None = None
        self._clients: dict[socket.socket, asyncio.TimerHandle] = {}
        self._expiry: asyncio.TimerHandle | None = None

    def start(self, path: str) -> None:
        """Start the service at a path. If there is no path, or that is impossible, ranks keep their sockets
        themselves.
        """
        if not path:  # Linux would choose an abstract name, which every process may connect to.
            return
        service = socket.socket(socket.AF_UNIX)
        try:
            service.bind(path)
            service.listen(CLIENTS)
        except OSError:
            service.close()
            return
        service.setblocking(False)
        self._service, self.path = service, path
        self._listen()

    def expect_successor(self, seconds: float = KEPT_SECONDS) -> None:
        """Drop the socket after `seconds`, unless a rank asks for it. The launcher calls this when a rank has
        ended.
        """
        self._cancel_expiry()
        if seconds > 0:
            self._expiry = asyncio.get_running_loop().call_later(seconds, self._drop)
        else:
            self._drop()

    def close(self) -> None:
        """End the service and close the socket that it keeps."""
        if self._service is not None:
            asyncio.get_running_loop().remove_reader(self._service.fileno())
            self._service.close()
            self._service = None
        for client in list(self._clients):
            self._end(client)
        self._drop()

    def _listen(self) -> None:
        if self._service is not None:
            asyncio.get_running_loop().add_reader(self._service.fileno(), self._accept, self._service)

    def _accept(self, service: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            client, _ = service.accept()
        except BlockingIOError:
            return
        except OSError:  # The process has no further descriptor. Poll again later.
            loop.remove_reader(service.fileno())
            loop.call_later(REQUEST_SECONDS, self._listen)
            return
        if len(self._clients) >= CLIENTS:
            client.close()
            return
        client.setblocking(False)
        self._clients[client] = loop.call_later(REQUEST_SECONDS, self._end, client)
        loop.add_reader(client.fileno(), self._handle, client)

    def _end(self, client: socket.socket) -> None:
        if timer := self._clients.pop(client, None):
            timer.cancel()
            asyncio.get_running_loop().remove_reader(client.fileno())
            client.close()

    def _handle(self, client: socket.socket) -> None:
        try:
            request, descriptors, _, _ = socket.recv_fds(client, 1, 1)
            found = [socket.socket(fileno=one) for one in descriptors if _is_socket(one)]
            with contextlib.ExitStack() as stack:
                for one in found:
                    stack.callback(one.close)
                self._respond(client, request, found, stack)
        except OSError:
            pass
        finally:
            self._end(client)

    def _respond(
        self, client: socket.socket, request: bytes, found: list[socket.socket], stack: contextlib.ExitStack
    ) -> None:
        """Do what a rank requests. `stack` closes the sockets that came with it."""
        if request == KEEP and found:
            stack.pop_all()
            self._drop()
            self._kept = found[0]
            self._kept.set_inheritable(False)
            client.send(DONE)
        elif request == GIVE and self._kept is not None:
            self._cancel_expiry()
            socket.send_fds(client, [DONE], [self._kept.fileno()])
        else:
            if request == DROP:
                self._drop()
            client.send(NOTHING)

    def _cancel_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _drop(self) -> None:
        self._cancel_expiry()
        if self._kept is not None:
            self._kept.close()
            self._kept = None


def _is_socket(descriptor: int) -> bool:
    """Return True if a descriptor is a socket. Close it if it is not."""
    good = stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    if not good:
        os.close(descriptor)
    return good
