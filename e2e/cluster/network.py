"""Network of a cluster: one bridge, and for each node a veth pair and a route to its pods."""

from __future__ import annotations

import json
from pathlib import Path

from e2e.cluster.addresses import Addresses, link_name, mac
from e2e.cluster.errors import CommandError
from e2e.cluster.run import run


def machine_routes() -> list[str]:
    """Return every IPv4 network to which the machine has a route, except the default route."""
    routes = json.loads(run(["ip", "-json", "-4", "route", "show", "table", "all"]) or "[]")
    return sorted({route["dst"] for route in routes if route.get("dst", "default") != "default"})


class Network:
    """Bridge, links and routes of a cluster on the machine. Every method may be repeated after a failure."""

    def __init__(self, identity: str, addresses: Addresses) -> None:
        self.identity = identity
        self.addresses = addresses
        self.bridge = link_name(identity)

    def create(self) -> None:
        """Create the bridge, and enable routing between its ports."""
        if not self.exists(self.bridge):
            # Set a fixed MAC address. Otherwise the bridge takes the lowest MAC address of its ports; when
            # the node at that port crashes, the address changes and all other nodes lose the bridge for
            # seconds.
            fixed = ["address", mac(self.addresses.host)]
            run(["ip", "link", "add", self.bridge, *fixed, "type", "bridge", "forward_delay", "0"])
        run(["ip", "addr", "replace", f"{self.addresses.host}/18", "dev", self.bridge])
        run(["ip", "link", "set", self.bridge, "up"])
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        # Packets leave by the link they came in on, which would trigger useless ICMP redirects.
        Path(f"/proc/sys/net/ipv4/conf/{self.bridge}/send_redirects").write_text("0")

    def forward_rules(self) -> list[str]:
        """Return rules that let the bridge's packets pass the machine's FORWARD chain.

        The list is empty if the chain accepts packets by default. Docker sets it to drop them.
        """
        try:
            chain = run(["iptables", "-w", "5", "-S", "FORWARD"])
        except CommandError:
            return []  # The kernel has no such table, so it drops nothing.
        if "-P FORWARD ACCEPT" in chain:
            return []
        return [f"-i {self.bridge} -o {self.bridge} -j ACCEPT"]

    @staticmethod
    def add_rules(rules: list[str]) -> None:
        """Insert the rules at the head of the FORWARD chain."""
        for rule in rules:
            run(["iptables", "-w", "5", "-I", "FORWARD", *rule.split()])

    @staticmethod
    def remove_rules(rules: list[str]) -> None:
        """Remove the rules. It is no error if a rule does not exist."""
        for rule in rules:
            try:
                run(["iptables", "-w", "5", "-D", "FORWARD", *rule.split()])
            except CommandError:
                continue

    def link(self, index: int) -> str:
        """Return the name of the veth device on the machine that leads to node `index`."""
        return link_name(self.identity, index)

    def connect(self, index: int, pid: int) -> None:
        """Connect the network namespace of process `pid` to the bridge, as node `index`, and route the
        node's pods to it.
        """
        link, address = self.link(index), self.addresses.node(index)
        self.disconnect(index)
        inner = ["name", "eth0", "address", mac(address), "netns", str(pid)]
        run(["ip", "link", "add", link, "type", "veth", "peer", *inner])
        run(["ip", "link", "set", link, "master", self.bridge, "up"])
        inside = [
            "link set lo up",
            f"addr add {address}/18 dev eth0",
            "link set eth0 up",
            f"route add default via {self.addresses.host}",
        ]
        run(["nsenter", f"--net=/proc/{pid}/ns/net", "ip", "-batch", "-"], text="\n".join(inside) + "\n")
        run(["ip", "route", "replace", self.addresses.pods_of(index), "via", address, "dev", self.bridge])
        if index == 1:
            # Only nodes have a kube-proxy, which Service addresses need. So the machine routes them through
            # the first node.
            run(["ip", "route", "replace", self.addresses.services, "via", address, "dev", self.bridge])

    def disconnect(self, index: int) -> None:
        """Delete the veth pair of node `index` after the node has ended."""
        self._delete(self.link(index))

    def set_link(self, index: int, *, up: bool) -> None:
        """Set the machine's end of a node's veth pair up or down."""
        run(["ip", "link", "set", self.link(index), "up" if up else "down"])

    def links(self) -> list[str]:
        """Return the names of the cluster's existing links: first those of nodes, then the bridge."""
        names = [path.name for path in Path("/sys/class/net").iterdir()]
        node_links = [name for name in names if name.startswith(f"{self.bridge}n")]
        return sorted(node_links) + [name for name in names if name == self.bridge]

    def destroy(self) -> None:
        """Delete all links and the bridge. The kernel deletes the routes with the bridge."""
        for link in self.links():
            self._delete(link)

    def _delete(self, link: str) -> None:
        if not self.exists(link):
            return
        try:
            run(["ip", "link", "delete", link])
        except CommandError:
            # When a network namespace ends, the kernel deletes its links. That may happen between the check
            # and the command.
            if self.exists(link):
                raise

    @staticmethod
    def exists(link: str) -> bool:
        """Return True if the machine has a link of this name."""
        return Path("/sys/class/net", link).exists()
