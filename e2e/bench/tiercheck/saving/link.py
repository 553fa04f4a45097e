"""A network link of limited speed between this machine and a network namespace that stands for another
node.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.network import machine_routes
from e2e.cluster.run import run, wait_for

LONGEST_SECONDS = 1800
"""Seconds after which the namespace disappears, even if the bench was killed."""
_BURST_BYTES = 256 * 1024
_LATENCY = "50ms"


@dataclass(frozen=True)
class Link:
    """Both ends of a link, and the way to start a program at the far end."""

    near: str
    far: str
    prefix: tuple[str, ...]
    """Words to put before a command. The program sees the files and processes of this machine."""


@contextlib.contextmanager
def link(bits_per_second: int) -> Iterator[Link]:
    """Limit each direction to `bits_per_second` by token buckets (tc-tbf) at both ends.

    Raise ClusterError on failure.
    """
    holder = subprocess.Popen(["unshare", "--net", "sleep", str(LONGEST_SECONDS)])
    try:
        wait_for(
            lambda: _in_namespace(holder.pid),
            deadline=10,
            every=0.01,
            what=f"network namespace of {holder.pid}",
        )
        name, network = f"cvl{holder.pid}", _free_network()
        near, far = f"{network}.1", f"{network}.2"
        bucket = [
            *("root", "tbf", "rate", f"{bits_per_second}bit"),
            *("burst", str(_BURST_BYTES), "latency", _LATENCY),
        ]
        inside = ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]
        # The veth pair disappears with the namespace.
        run(["ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid)])
        run(["ip", "addr", "add", f"{near}/30", "dev", name])
        run(["ip", "link", "set", name, "up"])
        run([*inside, "ip", "link", "set", "lo", "up"])
        run([*inside, "ip", "addr", "add", f"{far}/30", "dev", "eth0"])
        run([*inside, "ip", "link", "set", "eth0", "up"])
        run(["tc", "qdisc", "add", "dev", name, *bucket])
        run([*inside, "tc", "qdisc", "add", "dev", "eth0", *bucket])
        yield Link(near, far, tuple(inside))
    finally:
        holder.kill()
        holder.wait()


def _in_namespace(pid: int) -> bool:
    """Return True once the process has entered its namespace and runs `sleep`."""
    return Path(f"/proc/{pid}/comm").read_text().strip() == "sleep"


def _free_network() -> str:
    """Return the first three numbers of an unused network from the range for benchmarks (RFC 2544)."""
    routes = machine_routes()
    candidates = [f"198.18.{number}" for number in range(256)]
    random.shuffle(candidates)  # another bench may choose at the same time
    return next(one for one in candidates if not any(route.startswith(f"{one}.") for route in routes))
