"""Ports of the loopback interface."""

from __future__ import annotations

import os
import socket

HOST = "127.0.0.1"


def free_port() -> int:
    """Return a port that is free at present."""
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])


def port_error(port: int) -> str:
    """Return the reason why a port cannot be used; an empty text if it can."""
    if port > 65_535:
        return f"{port} is no port: choose a lower one, because each replica needs its own"
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((HOST, port))
        except OSError as error:
            return (
                f"port {port} of {HOST} cannot be opened: {os.strerror(error.errno or 0)}; choose another one"
            )
    return ""
