"""Which addresses a cluster uses: one /16 per cluster, so that several can be up at once."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.errors import ClusterError

# 10.96/12 (the default Service range) and 10.244/16 (the usual pod range) are left to other clusters.
FIRST, BLOCKS = 160, 64
MAX_NODES = 100


@dataclass(frozen=True)
class Addresses:
    """The addresses of the cluster in `block` (0..63): 10.(160+block).0.0/16, cut into three ranges."""

    block: int

    @property
    def _prefix(self) -> str:
        return f"10.{FIRST + self.block}"

    @property
    def network(self) -> str:
        """Everything the cluster uses."""
        return f"{self._prefix}.0.0/16"

    @property
    def host(self) -> str:
        """The bridge's own address: the API server, etcd and the DNS server listen here."""
        return f"{self._prefix}.0.1"

    @property
    def services(self) -> str:
        """The range of Service addresses."""
        return f"{self._prefix}.64.0/20"

    @property
    def kubernetes(self) -> str:
        """The address of the Service `kubernetes`."""
        return f"{self._prefix}.64.1"

    @property
    def dns(self) -> str:
        """The address of the Service `kube-dns`."""
        return f"{self._prefix}.64.10"

    @property
    def pods(self) -> str:
        """The range of all pods."""
        return f"{self._prefix}.128.0/17"

    def node(self, index: int) -> str:
        """The address of node `index` (1..100)."""
        if not 1 <= index <= MAX_NODES:
            raise ClusterError(f"node number {index} is outside 1..{MAX_NODES}")
        return f"{self._prefix}.0.{10 + index}"

    def pods_of(self, index: int) -> str:
        """The range of the pods on node `index`."""
        return f"{self._prefix}.{128 + index}.0/24"


def mac(address: str) -> str:
    """The hardware address that goes with an IPv4 address: locally administered, the same at every boot."""
    return "02:00:" + ":".join(f"{int(part):02x}" for part in address.split("."))


def cluster_id(checkout: Path, name: str) -> str:
    """A short name, unique for this checkout and `name`; prefixes everything that the cluster creates."""
    digest = hashlib.sha256(f"{checkout}\0{name}".encode()).hexdigest()[:6]
    return f"{name}-{digest}"


def link_name(identity: str, index: int | None = None) -> str:
    """The network link of a cluster (its bridge) or of node `index`: Linux allows 15 characters."""
    digest = hashlib.sha256(identity.encode()).hexdigest()[:7]
    return f"cv{digest}" if index is None else f"cv{digest}n{index}"


def choose_block(identity: str, taken: Collection[int], routes: Iterable[str]) -> int:
    """A block that no other cluster holds and whose range overlaps no route of the machine.

    The search begins at a place that depends on the identity, so a cluster usually keeps its addresses.
    """
    networks = [ipaddress.ip_network(route, strict=False) for route in routes]
    start = int(hashlib.sha256(identity.encode()).hexdigest(), 16)
    for step in range(BLOCKS):
        block = (start + step) % BLOCKS
        own = ipaddress.ip_network(Addresses(block).network)
        if block not in taken and not any(own.overlaps(network) for network in networks):
            return block
    raise ClusterError(
        f"no free address range in 10.{FIRST}.0.0 .. 10.{FIRST + BLOCKS - 1}.0.0: {len(taken)} clusters hold"
        " some, routes of this machine the rest; take a cluster down"
    )
