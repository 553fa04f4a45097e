"""Queue disciplines of network interfaces, by the kernel's rtnetlink. So the image needs no tc(8).

The formats are those of rtnetlink(7) and linux/pkt_sched.h.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_RTM_GETLINK, _RTM_NEWQDISC, _RTM_DELQDISC, _RTM_GETQDISC = 18, 36, 37, 38
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_REQUEST, _ACK, _DUMP, _CREATE, _EXCLUSIVE = 1, 4, 0x300, 0x400, 0x200
_HEADER = struct.Struct("=IHHII")
_LINK = struct.Struct("=BxHiII")
_QDISC = struct.Struct("=BxxxiIII")
_ATTRIBUTE = struct.Struct("=HH")
_IFLA_IFNAME, _TCA_KIND, _TCA_OPTIONS, _TCA_STATS2 = 3, 1, 2, 7
_TBF_PARMS, _TBF_RATE64, _TBF_BURST = 1, 4, 6
_STATS_BASIC, _STATS_QUEUE = 1, 3
_ETHERNET = 1
"""TC_LINKLAYER_ETHERNET: the kernel then needs no rate table."""
_IFF_LOOPBACK = 8
_ROOT = 0xFFFFFFFF
_CLONE_NEWNET = 0x40000000
_TIMEOUT_SECONDS = 5.0
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class QueueDiscipline:
    """The root queue discipline of an interface, and its counters."""

    kind: str
    handle: int
    sent_bytes: int = 0
    backlog_bytes: int = 0
    delayed: int = 0
    """Number of times that a packet had to wait because the rate was reached (overlimits)."""


class RouteSocket:
    """An rtnetlink socket in one network namespace."""

    def __init__(self, namespace: Path) -> None:
        """Open the socket. Raises OSError if the namespace is gone or may not be entered."""
        descriptor = os.open(namespace, os.O_RDONLY)
        try:
            self._socket = _socket_in(descriptor)
        finally:
            os.close(descriptor)
        self._socket.settimeout(_TIMEOUT_SECONDS)
        self._sequence = 0

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def interfaces(self) -> dict[str, int]:
        """Return the number of each interface except the loopback, by name."""
        found = {}
        for kind, body in self._request(_RTM_GETLINK, _DUMP, _LINK.pack(0, 0, 0, 0, 0)):
            if kind != _RTM_GETLINK - 2:  # RTM_NEWLINK
                continue
            _, _, index, flags, _ = _LINK.unpack_from(body)
            name = dict(_attributes(body[_LINK.size :])).get(_IFLA_IFNAME, b"")
            if not flags & _IFF_LOOPBACK:
                found[name.rstrip(b"\0").decode()] = index
        return found

    def root(self, interface: int) -> QueueDiscipline | None:
        """Return the root queue discipline of an interface; None if it has none."""
        for kind, body in self._request(_RTM_GETQDISC, _DUMP, _QDISC.pack(0, 0, 0, 0, 0)):
            if kind != _RTM_NEWQDISC:
                continue
            _, index, handle, parent, _ = _QDISC.unpack_from(body)
            if index != interface or parent != _ROOT:
                continue
            parts = dict(_attributes(body[_QDISC.size :]))
            stats = dict(_attributes(parts.get(_TCA_STATS2, b"")))
            sent = struct.unpack_from("=Q", stats.get(_STATS_BASIC, bytes(8)))[0]
            _, backlog, _, _, delayed = struct.unpack_from("=IIIII", stats.get(_STATS_QUEUE, bytes(20)))
            name = parts.get(_TCA_KIND, b"").rstrip(b"\0").decode()
            return QueueDiscipline(name, handle, sent, backlog, delayed)
        return None

    def limit_rate(self, interface: int, handle: int, bytes_per_second: int, burst: int, limit: int) -> None:
        """Give an interface a token bucket filter (tbf) as its root queue discipline. Raises OSError, for
        example if it has another one.
        """
        low = min(bytes_per_second, 2**32 - 1)
        rate = struct.pack("=BBHhHI", 0, _ETHERNET, 0, -1, 0, low)
        parameters = rate + bytes(12) + struct.pack("=III", limit, 0, 0)
        options = _attribute(_TBF_PARMS, parameters) + _attribute(_TBF_BURST, struct.pack("=I", burst))
        if bytes_per_second > low:
            options += _attribute(_TBF_RATE64, struct.pack("=Q", bytes_per_second))
        body = _QDISC.pack(0, interface, handle, _ROOT, 0)
        body += _attribute(_TCA_KIND, b"tbf\0") + _attribute(_TCA_OPTIONS, options)
        for _ in self._request(_RTM_NEWQDISC, _ACK | _CREATE | _EXCLUSIVE, body):
            pass

    def remove_root(self, interface: int, handle: int) -> None:
        """Remove the root queue discipline with this handle. Raises OSError if the kernel refuses."""
        body = _QDISC.pack(0, interface, handle, _ROOT, 0)
        for _ in self._request(_RTM_DELQDISC, _ACK, body):
            pass

    def _request(self, kind: int, flags: int, body: bytes) -> Iterator[tuple[int, bytes]]:
        """Send a request and yield the type and the body of each reply. Raises OSError if it fails."""
        self._sequence += 1
        size = _HEADER.size + len(body)
        self._socket.send(_HEADER.pack(size, kind, _REQUEST | flags, self._sequence, 0) + body)
        while True:
            data = self._socket.recv(2**17)
            while len(data) >= _HEADER.size:
                size, answer, _, sequence, _ = _HEADER.unpack_from(data)
                part, data = data[_HEADER.size : size], data[(size + 3) & ~3 :]
                if sequence != self._sequence:
                    continue
                if answer == _NLMSG_ERROR:
                    if code := struct.unpack_from("=i", part)[0]:
                        raise OSError(-code, os.strerror(-code))
                    return
                if answer == _NLMSG_DONE:
                    return
                yield answer, part


def _socket_in(namespace: int) -> socket.socket:
    """Return an rtnetlink socket of a network namespace. A socket stays in the namespace where it was opened.

    A namespace belongs to a thread, so a thread of its own enters it.
    """
    found: list[socket.socket] = []
    errors: list[OSError] = []

    def enter() -> None:
        try:
            if _libc.setns(namespace, _CLONE_NEWNET):
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))
            found.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE))
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=enter, name="enter namespace")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return found[0]


def _attribute(kind: int, value: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _ATTRIBUTE.size:
        size, kind = _ATTRIBUTE.unpack_from(data)
        if size < _ATTRIBUTE.size:
            return
        yield kind & 0x3FFF, data[_ATTRIBUTE.size : size]
        data = data[(size + 3) & ~3 :]
