"""The sockets and the HTTP servers of a serving rank: one for clients, and one for administration."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import uvicorn
import uvloop

from convoy_workloads.runtime.errors import OTHER, ParamsError
from convoy_workloads.runtime.process_exit import exit_process
from convoy_workloads.serving import kept_socket
from convoy_workloads.serving.bounded_http import BoundedHttp

BIND_SECONDS = 5.0
"""Seconds to retry if the port is in use. A replaced rank may still be ending."""
KEEP_ALIVE_SECONDS = 75
"""Seconds until an idle connection is closed. Proxies usually close theirs after 60 s."""
ADMIN_PREFIX = "convoy-admin-"
"""Beginning of the name of the temporary folder with the admin socket."""
ADMIN_SOCKET = "admin.sock"
BACKLOG = 2048
UNREAD_SECONDS = 30
"""Seconds after which the kernel ends a connection whose client reads nothing although data waits, or is gone
without a word.
"""
END_SECONDS = 5.0
"""Seconds for the last responses to be sent."""


class PortInUse(Exception):
    """Raised if the port cannot be opened. The message says why and what to do."""


class HttpServer(uvicorn.Server):
    """A server that leaves the signals to the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle no signal."""
        yield

    def close_idle(self) -> None:
        """Close the connections without a request, and the others after their response."""
        for connection in list(self.server_state.connections):
            connection.shutdown()


def http_server(app: object) -> HttpServer:
    """Return a server for an application. uvicorn's logs are off."""
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        loop="none",
        http=BoundedHttp,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(END_SECONDS),
        backlog=BACKLOG,
    )
    return HttpServer(config)


async def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket: that of the rank that this one replaces, or another one. Raises PortInUse if
    the port cannot be opened.
    """
    if kept := kept_socket.fetch(host, port):
        kept.setblocking(False)
        return kept
    deadline = asyncio.get_running_loop().time() + BIND_SECONDS
    while True:
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Connections inherit this option. Only Linux has it.
            if option := getattr(socket, "TCP_USER_TIMEOUT", None):
                listener.setsockopt(socket.IPPROTO_TCP, option, UNREAD_SECONDS * 1000)
            listener.bind((host, port))
            listener.listen(BACKLOG)
            listener.setblocking(False)
            kept_socket.keep(listener)
            return listener
        except OSError as error:
            listener.close()
            kept_socket.drop()
            if asyncio.get_running_loop().time() > deadline:
                raise PortInUse(
                    f"port {port} of {host} cannot be opened: {os.strerror(error.errno or 0)}. End the "
                    "process that uses the port, or set spec.service.port to another one"
                ) from error
        await asyncio.sleep(0.1)


@contextlib.contextmanager
def admin_listener(socket_path: Path | None) -> Iterator[socket.socket]:
    """Yield a listening Unix socket that only this user can connect to. Without a path, it is below the
    temporary folder.
    """
    with tempfile.TemporaryDirectory(prefix=ADMIN_PREFIX) as folder:
        path = socket_path or Path(folder) / ADMIN_SOCKET
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        mask = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(mask)
        try:
            listener.listen(16)
            listener.setblocking(False)
            yield listener
        finally:
            listener.close()
            path.unlink(missing_ok=True)


def run_server(server: Coroutine[Any, Any, int]) -> int:
    """Run a server on an event loop until it ends, and return the exit code of the process. End the process
    at once if the server's parameters are invalid.
    """
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(server)
    except PortInUse as error:
        print(f"convoy: {error}", file=sys.stderr, flush=True)
        return OTHER
    except ParamsError as error:
        exit_process(error)
