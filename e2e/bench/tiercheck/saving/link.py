"""A network link of limited speed from this machine to a network namespace, which acts as another node."""

from __future__ import annotations

import contextlib
import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from convoy_agents.faults.link import HANDLE
from convoy_agents.faults.netlink import RouteSocket
from e2e.cluster.network import machine_routes
from e2e.cluster.run import run, wait_for

MAX_SECONDS = 1800
"""Seconds after which the namespace disappears, even if the bench was killed and could not remove it."""
_BURST_BYTES = 256 * 1024
_QUEUE_SECONDS = 0.05
"""Longest time that a packet waits."""


@dataclass(frozen=True)
class Link:
    """Addresses of the link's two ends, and the command prefix that runs a program at the far end."""

    near: str
    far: str
    prefix: tuple[str, ...]
    """Arguments to put before a command to run it at the far end. The command still sees this machine's
    files and processes.
    """


@contextlib.contextmanager
def link(bits_per_second: int) -> Iterator[Link]:
    """Create a link and yield it. Each direction is limited to `bits_per_second` by a token bucket
    (tc-tbf). 0: the processors alone limit the link.

    Raise ClusterError if the link cannot be created.
    """
    holder = subprocess.Popen(["unshare", "--net", "sleep", str(MAX_SECONDS)])
    try:
        wait_for(
            lambda: _in_namespace(holder.pid),
            deadline=10,
            every=0.01,
            what=f"network namespace of {holder.pid}",
        )
        name, network = f"cvl{holder.pid}", _free_network()
        near, far = f"{network}.1", f"{network}.2"
        inside = ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]
        # No clean-up is needed: the kernel deletes the veth pair with the namespace.
        run(["ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid)])
        run(["ip", "addr", "add", f"{near}/30", "dev", name])
        run(["ip", "link", "set", name, "up"])
        run([*inside, "ip", "link", "set", "lo", "up"])
        run([*inside, "ip", "addr", "add", f"{far}/30", "dev", "eth0"])
        run([*inside, "ip", "link", "set", "eth0", "up"])
        if bits_per_second:
            _limit(Path("/proc/self/ns/net"), name, bits_per_second)
            _limit(Path(f"/proc/{holder.pid}/ns/net"), "eth0", bits_per_second)
        yield Link(near, far, tuple(inside))
    finally:
        holder.kill()
        holder.wait()


def _limit(namespace: Path, interface: str, bits_per_second: int) -> None:
    """Limit what an interface sends."""
    route, rate = RouteSocket(namespace), bits_per_second // 8
    try:
        index = route.interfaces()[interface]
        route.limit_rate(index, HANDLE, rate, _BURST_BYTES, int(rate * _QUEUE_SECONDS) + _BURST_BYTES)
    finally:
        route.close()


def _in_namespace(pid: int) -> bool:
    """Return True if the process runs `sleep`, which it does once it is in its own namespace."""
    return Path(f"/proc/{pid}/comm").read_text().strip() == "sleep"


def _free_network() -> str:
    """Return the first three numbers of an unused IPv4 network in the range for benchmarks (RFC 2544)."""
    routes = machine_routes()
    candidates = [f"198.18.{number}" for number in range(256)]
    random.shuffle(candidates)  # Shuffle, because another bench may choose at the same moment.
    return next(one for one in candidates if not any(route.startswith(f"{one}.") for route in routes))
