"""The rendezvous port of a job. The launcher of rank 0's pod picks a port when the operator requests it. It
keeps the port bound until rank 0 is about to start.
"""

from __future__ import annotations

import socket

from convoy_workloads.runtime.frames import Message


class RendezvousPort:
    """The rendezvous port of the newest incarnation."""

    def __init__(self) -> None:
        self._incarnation = 0
        self._number = 0
        self._held: socket.socket | None = None

    @property
    def picked(self) -> bool:
        """Return True if a port was picked."""
        return self._incarnation > 0

    def pick(self, incarnation: int) -> bool:
        """Pick a free port for `incarnation` and keep it bound, so that no other process gets it before
        rank 0 listens.

        If a port was already picked for this incarnation, keep that port. Returns False if a later
        incarnation already has a port. Raises OSError if no port is free.
        """
        if incarnation > self._incarnation:
            self._close()
            self._held = _hold()
            self._number = self._held.getsockname()[1]
            self._incarnation = incarnation
        return incarnation == self._incarnation

    def release(self, incarnation: int) -> None:
        """Release the port of `incarnation`, so that rank 0 can listen on it. Do nothing if the bound port
        was picked for another incarnation.
        """
        if incarnation == self._incarnation:
            self._close()

    def message(self) -> Message:
        """Return the message that reports the port to the agent."""
        return {"type": "portPicked", "incarnation": self._incarnation, "port": self._number}

    def _close(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None


def _hold() -> socket.socket:
    """Return a socket that is bound to a free port on all addresses, including IPv6 if available. The
    socket does not listen.
    """
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
