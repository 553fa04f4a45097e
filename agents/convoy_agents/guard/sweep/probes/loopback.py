"""Measures the speed of a TCP stream between two sockets of this node."""

from __future__ import annotations

import socket
import threading
import time

from convoy_agents.guard.sweep.probe import Measured, sample_numbers

SIZE = 64 * 2**20
"""Number of bytes sent for one sample."""
_BLOCK = 2**20
_SECONDS = 20.0
"""Timeout of each socket operation in seconds."""


def run(accelerator: int, seconds: float) -> Measured:
    """Measure the speed of the loopback interface in MB/s. It shows the speed of the kernel and the memory,
    without a network.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(_SECONDS)
        sink = threading.Thread(target=_sink, args=(server,), daemon=True)
        sink.start()
        with socket.create_connection(server.getsockname(), timeout=_SECONDS) as connection:
            samples = [_sample(connection) for _ in sample_numbers(seconds)]
        sink.join(_SECONDS)
    return Measured(samples)


def _sample(connection: socket.socket) -> float:
    block = bytes(_BLOCK)
    began = time.perf_counter()
    for _ in range(SIZE // _BLOCK):
        connection.sendall(block)
    # Wait for the receiver's confirmation, because the last bytes may still be in a buffer.
    if connection.recv(1) != b"!":
        raise ConnectionError("the receiver closed the connection")
    return SIZE / (time.perf_counter() - began) / 1e6


def _sink(server: socket.socket) -> None:
    """Accept one connection, receive its data, and confirm each complete sample with one byte."""
    connection, _ = server.accept()
    block = bytearray(_BLOCK)
    left = SIZE
    with connection:
        while count := connection.recv_into(block, min(_BLOCK, left)):
            left -= count
            if not left:
                connection.sendall(b"!")
                left = SIZE
