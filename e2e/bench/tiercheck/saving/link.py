"""A cable of a given speed between this machine and a network namespace, which is another node's."""

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
"""A namespace whose bench was killed goes after this."""
_BURST_BYTES = 256 * 1024
_LATENCY = "50ms"


@dataclass(frozen=True)
class Link:
    """Both ends, and how to start a program at the far one."""

    near: str
    far: str
    prefix: tuple[str, ...]
    """Before a command. It sees the same files and processes as here."""


@contextlib.contextmanager
def link(bits_per_second: int) -> Iterator[Link]:
    """A token bucket (tc-tbf) at either end lets so many bits pass in either direction. ClusterError."""
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
        # It goes with the namespace.
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
    """Return True once the process is in its namespace."""
    return Path(f"/proc/{pid}/comm").read_text().strip() == "sleep"


def _free_network() -> str:
    """Three numbers of a network that the machine has no way to, of those kept for benches (RFC 2544)."""
    routes = machine_routes()
    candidates = [f"198.18.{number}" for number in range(256)]
    random.shuffle(candidates)  # another bench may look at the same time
    return next(one for one in candidates if not any(route.startswith(f"{one}.") for route in routes))
