"""The cables of a cluster: one bridge, one veth pair per node, one route per node's pods."""

from __future__ import annotations

import json
from pathlib import Path

from e2e.cluster.addresses import Addresses, link_name, mac
from e2e.cluster.errors import CommandError
from e2e.cluster.run import run


def machine_routes() -> list[str]:
    """Every IPv4 network that the machine has a route to, without the default route."""
    routes = json.loads(run(["ip", "-json", "-4", "route", "show", "table", "all"]) or "[]")
    return sorted({route["dst"] for route in routes if route.get("dst", "default") != "default"})


class Network:
    """The machine's side of one cluster's network. Every method may be called again after a failure."""

    def __init__(self, identity: str, addresses: Addresses) -> None:
        self.identity = identity
        self.addresses = addresses
        self.bridge = link_name(identity)

    def create(self) -> None:
        """Make the bridge, and let the machine route between its ports."""
        if not self.exists(self.bridge):
            # Else the bridge takes the lowest address of its ports, and all others lose their way to it for
            # seconds whenever that port's node dies.
            fixed = ["address", mac(self.addresses.host)]
            run(["ip", "link", "add", self.bridge, *fixed, "type", "bridge", "forward_delay", "0"])
        run(["ip", "addr", "replace", f"{self.addresses.host}/18", "dev", self.bridge])
        run(["ip", "link", "set", self.bridge, "up"])
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        # Packets leave by the link they came in on: telling the sender of a shorter way would be noise.
        Path(f"/proc/sys/net/ipv4/conf/{self.bridge}/send_redirects").write_text("0")

    def forward_rules(self) -> list[str]:
        """Rules that the machine's FORWARD chain needs because it drops by default (as Docker sets it)."""
        try:
            chain = run(["iptables", "-w", "5", "-S", "FORWARD"])
        except CommandError:
            return []  # no such table in this kernel: nothing that could drop
        if "-P FORWARD ACCEPT" in chain:
            return []
        return [f"-i {self.bridge} -o {self.bridge} -j ACCEPT"]

    @staticmethod
    def add_rules(rules: list[str]) -> None:
        """Put the rules before all others of the FORWARD chain."""
        for rule in rules:
            run(["iptables", "-w", "5", "-I", "FORWARD", *rule.split()])

    @staticmethod
    def remove_rules(rules: list[str]) -> None:
        """Take the rules out again; those that are gone are no error."""
        for rule in rules:
            try:
                run(["iptables", "-w", "5", "-D", "FORWARD", *rule.split()])
            except CommandError:
                continue

    def link(self, index: int) -> str:
        """The name of the machine's end of the cable to node `index`."""
        return link_name(self.identity, index)

    def plug(self, index: int, pid: int) -> None:
        """Lay a cable into the network namespace of `pid`, address it, and route the node's pods there."""
        link, address = self.link(index), self.addresses.node(index)
        self.unplug(index)
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

    def unplug(self, index: int) -> None:
        """Remove the cable of a node that is gone."""
        self._delete(self.link(index))

    def set_link(self, index: int, *, up: bool) -> None:
        """Pull a node's cable out at the machine's end, or put it back."""
        run(["ip", "link", "set", self.link(index), "up" if up else "down"])

    def links(self) -> list[str]:
        """The cluster's links that exist now: the cables, then the bridge."""
        names = [path.name for path in Path("/sys/class/net").iterdir()]
        cables = [name for name in names if name.startswith(f"{self.bridge}n")]
        return sorted(cables) + [name for name in names if name == self.bridge]

    def destroy(self) -> None:
        """Remove every cable and the bridge; the routes go with it."""
        for link in self.links():
            self._delete(link)

    def _delete(self, link: str) -> None:
        if not self.exists(link):
            return
        try:
            run(["ip", "link", "delete", link])
        except CommandError:
            # A dying network namespace takes its cables with it, perhaps between our look and our hand.
            if self.exists(link):
                raise

    @staticmethod
    def exists(link: str) -> bool:
        """Whether the machine has a link of this name."""
        return Path("/sys/class/net", link).exists()
