"""A TCP proxy to the API server. Tests can cut its connections."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading

from tests.ports import free_port


class CuttableProxy:
    """Forwards bytes to a local port until it is cut."""

    def __init__(self, port: int) -> None:
        self.port = free_port()
        self._target = port
        self._cut = threading.Event()
        self._ended = threading.Event()
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._cut.is_set():
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self._target))
            self._open += [near, far]
            threading.Thread(target=self._pass, args=(near, far), daemon=True).start()

    def _pass(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), selectors.DefaultSelector() as waiting:
            waiting.register(near, selectors.EVENT_READ, far)
            waiting.register(far, selectors.EVENT_READ, near)
            while True:
                for key, _ in waiting.select():
                    data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                    if not data:
                        return
                    key.data.sendall(data)

    def cut(self) -> None:
        """Close all connections and refuse new ones."""
        self._cut.set()
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def mend(self) -> None:
        """Accept connections again after `cut`."""
        self._cut.clear()

    def end(self) -> None:
        """Stop the proxy."""
        self._ended.set()
        self.cut()
        self._listener.close()
