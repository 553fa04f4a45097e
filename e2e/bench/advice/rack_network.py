"""Hosts in racks on this machine: each host has a network namespace, and token buckets limit its link and
the uplink of its rack.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from e2e.bench.traces.network import INTERFACE, inside, limit, namespace
from e2e.cluster.run import run


@contextlib.contextmanager
def rack_network(racks: Sequence[int], host_bits: int, uplink_bits: int) -> Iterator[list[list[str]]]:
    """Create a network, and yield for each rank the words to put before a command that runs there.

    `racks`: number of each rank's rack. `host_bits`, `uplink_bits`: bits a second of the links, in each
    direction. Raises ClusterError if the network cannot be created, for example without the rights of root.
    """
    with contextlib.ExitStack() as stack:
        switch, *holders = [stack.enter_context(namespace()) for _ in range(len(racks) + 1)]
        words = inside(switch)
        _bridge(words, "spine")
        for rack in sorted(set(racks)):
            _bridge(words, f"rack{rack}")
            up, down = f"up{rack}", f"down{rack}"
            run([*words, "ip", "link", "add", up, "type", "veth", "peer", "name", down])
            run([*words, "ip", "link", "set", up, "master", f"rack{rack}", "up"])
            run([*words, "ip", "link", "set", down, "master", "spine", "up"])
            # `up` sends to the spine, and `down` to the rack.
            for interface in (up, down):
                limit(switch, interface, uplink_bits)
        for rank, holder in enumerate(holders):
            port, own = f"port{rank}", inside(holder)
            peer = ["peer", "name", INTERFACE, "netns", str(holder)]
            run([*words, "ip", "link", "add", port, "type", "veth", *peer])
            run([*words, "ip", "link", "set", port, "master", f"rack{racks[rank]}", "up"])
            run([*own, "ip", "link", "set", "lo", "up"])
            run([*own, "ip", "addr", "add", f"198.18.0.{rank + 1}/24", "dev", INTERFACE])
            run([*own, "ip", "link", "set", INTERFACE, "up"])
            limit(holder, INTERFACE, host_bits)
            limit(switch, port, host_bits)
        yield [[*inside(holder), "env", f"GLOO_SOCKET_IFNAME={INTERFACE}"] for holder in holders]


def _bridge(words: Sequence[str], name: str) -> None:
    run([*words, "ip", "link", "add", name, "type", "bridge", "forward_delay", "0"])
    run([*words, "ip", "link", "set", name, "up"])
