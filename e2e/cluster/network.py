"""The network of a cluster: one bridge, and one veth pair and one pod route per node."""

from __future__ import annotations

import json
from pathlib import Path

from e2e.cluster.addresses import Addresses, link_name, mac
from e2e.cluster.errors import CommandError
from e2e.cluster.run import run


def machine_routes() -> list[str]:
    """Return every IPv4 network that the machine has a route to, without the default route."""
    routes = json.loads(run(["ip", "-json", "-4", "route", "show", "table", "all"]) or "[]")
    return sorted({route["dst"] for route in routes if route.get("dst", "default") != "default"})


class Network:
    """The machine's side of one cluster's network. Every method may be repeated after a failure."""

    def __init__(self, identity: str, addresses: Addresses) -> None:
        self.identity = identity
        self.addresses = addresses
        self.bridge = link_name(identity)

    def create(self) -> None:
        """Create the bridge, and let the machine route between its ports."""
        if not self.exists(self.bridge):
            # Without a fixed address the bridge takes the lowest MAC address of its ports. The crash of that
            # port's node would then change the address, and all other nodes would lose the bridge for
            # seconds.
            fixed = ["address", mac(self.addresses.host)]
            run(["ip", "link", "add", self.bridge, *fixed, "type", "bridge", "forward_delay", "0"])
        run(["ip", "addr", "replace", f"{self.addresses.host}/18", "dev", self.bridge])
        run(["ip", "link", "set", self.bridge, "up"])
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        # Packets leave by the link they came in on, so ICMP redirects to a shorter path are useless.
        Path(f"/proc/sys/net/ipv4/conf/{self.bridge}/send_redirects").write_text("0")

    def forward_rules(self) -> list[str]:
        """Return rules for the machine's FORWARD chain, if it drops by default as Docker sets it."""
        try:
            chain = run(["iptables", "-w", "5", "-S", "FORWARD"])
        except CommandError:
            return []  # Without this table in the kernel nothing can be dropped.
        if "-P FORWARD ACCEPT" in chain:
            return []
        return [f"-i {self.bridge} -o {self.bridge} -j ACCEPT"]

    @staticmethod
    def add_rules(rules: list[str]) -> None:
        """Insert the rules before all others of the FORWARD chain."""
        for rule in rules:
            run(["iptables", "-w", "5", "-I", "FORWARD", *rule.split()])

    @staticmethod
    def remove_rules(rules: list[str]) -> None:
        """Remove the rules. It is no error if some do not exist."""
        for rule in rules:
            try:
                run(["iptables", "-w", "5", "-D", "FORWARD", *rule.split()])
            except CommandError:
                continue

    def link(self, index: int) -> str:
        """Return the name of the machine's end of the veth pair of node `index`."""
        return link_name(self.identity, index)

    def connect(self, index: int, pid: int) -> None:
        """Connect the network namespace of `pid` by a veth pair, set its address and route the pods to it."""
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
            # The machine reaches Services through the first node's proxy.
            run(["ip", "route", "replace", self.addresses.services, "via", address, "dev", self.bridge])

    def disconnect(self, index: int) -> None:
        """Delete the veth pair of a node that has ended."""
        self._delete(self.link(index))

    def set_link(self, index: int, *, up: bool) -> None:
        """Set the machine's end of a node's veth pair up or down."""
        run(["ip", "link", "set", self.link(index), "up" if up else "down"])

    def links(self) -> list[str]:
        """Return the cluster's existing links: the nodes' links, then the bridge."""
        names = [path.name for path in Path("/sys/class/net").iterdir()]
        node_links = [name for name in names if name.startswith(f"{self.bridge}n")]
        return sorted(node_links) + [name for name in names if name == self.bridge]

    def destroy(self) -> None:
        """Delete all links and the bridge. The routes disappear with the bridge."""
        for link in self.links():
            self._delete(link)

    def _delete(self, link: str) -> None:
        if not self.exists(link):
            return
        try:
            run(["ip", "link", "delete", link])
        except CommandError:
            # The end of a network namespace deletes its links, perhaps between the check and this command.
            if self.exists(link):
                raise

    @staticmethod
    def exists(link: str) -> bool:
        """Return True if the machine has a link of this name."""
        return Path("/sys/class/net", link).exists()
