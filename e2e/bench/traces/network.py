"""A network of ranks on this machine: each rank has a network namespace, and a link of limited rate to a
switch.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from convoy_agents.faults.link import HANDLE
from convoy_agents.faults.netlink import RouteSocket
from e2e.cluster.run import run, wait_for

MAX_SECONDS = 900
"""Seconds after which the namespaces disappear, even if the bench was killed and could not remove them."""
INTERFACE = "eth0"
_BURST_BYTES = 64 * 1024
_QUEUE_SECONDS = 0.05
"""Longest time that a packet waits."""


@contextlib.contextmanager
def network(ranks: int, bits_per_second: int) -> Iterator[list[list[str]]]:
    """Create a network, and yield for each rank the words to put before a command that runs there.

    A token bucket (tc-tbf) limits what each rank sends. Raises ClusterError if the network cannot be created,
    for example without the rights of root.
    """
    with contextlib.ExitStack() as stack:
        switch, *holders = [stack.enter_context(namespace()) for _ in range(ranks + 1)]
        words = inside(switch)
        run([*words, "ip", "link", "add", "switch", "type", "bridge", "forward_delay", "0"])
        run([*words, "ip", "link", "set", "switch", "up"])
        for rank, holder in enumerate(holders):
            port, own = f"port{rank}", inside(holder)
            peer = ["peer", "name", INTERFACE, "netns", str(holder)]
            run([*words, "ip", "link", "add", port, "type", "veth", *peer])
            run([*words, "ip", "link", "set", port, "master", "switch", "up"])
            run([*own, "ip", "link", "set", "lo", "up"])
            run([*own, "ip", "addr", "add", f"198.18.0.{rank + 1}/24", "dev", INTERFACE])
            run([*own, "ip", "link", "set", INTERFACE, "up"])
            limit(holder, INTERFACE, bits_per_second)
        # The kernel deletes the links with the namespaces.
        yield [inside(holder) for holder in holders]


@contextlib.contextmanager
def namespace() -> Iterator[int]:
    """Yield the process id of the holder of a network namespace."""
    holder = subprocess.Popen(["unshare", "--net", "sleep", str(MAX_SECONDS)])
    try:
        wait_for(
            lambda: Path(f"/proc/{holder.pid}/comm").read_text().strip() == "sleep",
            deadline=30,
            every=0.01,
            what=f"network namespace of {holder.pid}",
        )
        yield holder.pid
    finally:
        holder.kill()
        holder.wait()


def inside(holder: int) -> list[str]:
    """Return the words before a command that runs in a network namespace."""
    return ["nsenter", f"--net=/proc/{holder}/ns/net"]


def limit(holder: int, interface: str, bits_per_second: int) -> None:
    """Limit what a network namespace sends over an interface."""
    route, rate = RouteSocket(Path(f"/proc/{holder}/ns/net")), bits_per_second // 8
    try:
        index = route.interfaces()[interface]
        route.limit_rate(index, HANDLE, rate, _BURST_BYTES, int(rate * _QUEUE_SECONDS) + _BURST_BYTES)
    finally:
        route.close()
