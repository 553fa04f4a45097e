"""The rendezvous port: picked when the operator asks, held until rank 0 is about to listen on it."""

from __future__ import annotations

import socket

from convoy_workloads.runtime.frames import Message


class RendezvousPort:
    """The port picked for the newest incarnation."""

    def __init__(self) -> None:
        self._incarnation = 0
        self._number = 0
        self._held: socket.socket | None = None

    @property
    def picked(self) -> bool:
        """Whether a port was ever picked."""
        return self._incarnation > 0

    def pick(self, incarnation: int) -> bool:
        """Picks and holds a free port, so that nothing else takes it before rank 0 listens.

        Asked again, it stays with the one it has. False when a later incarnation has asked; OSError when no
        port is free.
        """
        if incarnation > self._incarnation:
            self._close()
            self._held = _hold()
            self._number = self._held.getsockname()[1]
            self._incarnation = incarnation
        return incarnation == self._incarnation

    def release(self, incarnation: int) -> None:
        """Makes room for rank 0 of `incarnation`; a port held for another stays held."""
        if incarnation == self._incarnation:
            self._close()

    def message(self) -> Message:
        """What the agent is told."""
        return {"type": "portPicked", "incarnation": self._incarnation, "port": self._number}

    def _close(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None


def _hold() -> socket.socket:
    """A socket bound to a free port on all addresses, IPv6 too where there is any; not listening."""
    family = socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET
    try:
        return _bind(family)
    except OSError:
        return _bind(socket.AF_INET)


def _bind(family: int) -> socket.socket:
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        held.bind(("", 0))
    except OSError:
        held.close()
        raise
    return held
