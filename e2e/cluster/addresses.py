"""Addresses of a cluster: each cluster has its own /16, so several can be up at once."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.errors import ClusterError

# The address blocks avoid 10.96/12 (the default Service range) and 10.244/16 (the usual pod range), so other
# clusters on this machine can use these ranges.
FIRST, BLOCKS = 160, 64
MAX_NODES = 100


@dataclass(frozen=True)
class Addresses:
    """The addresses of a cluster. Address block `block` (0..63) is 10.(160+block).0.0/16, divided into
    ranges for nodes, Services and pods.
    """

    block: int

    @property
    def _prefix(self) -> str:
        return f"10.{FIRST + self.block}"

    @property
    def network(self) -> str:
        """The cluster's whole /16 range."""
        return f"{self._prefix}.0.0/16"

    @property
    def host(self) -> str:
        """The address of the bridge. The API server, etcd and the DNS server listen on it."""
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
        """The range of the pods of all nodes."""
        return f"{self._prefix}.128.0/17"

    def node(self, index: int) -> str:
        """Return the address of node `index` (1..100)."""
        if not 1 <= index <= MAX_NODES:
            raise ClusterError(f"node number {index} is outside 1..{MAX_NODES}")
        return f"{self._prefix}.0.{10 + index}"

    def pods_of(self, index: int) -> str:
        """Return the range of the pods on node `index`."""
        return f"{self._prefix}.{128 + index}.0/24"


def mac(address: str) -> str:
    """Return a locally administered MAC address derived from an IPv4 address, so it is the same at every
    boot.
    """
    return "02:00:" + ":".join(f"{int(part):02x}" for part in address.split("."))


def cluster_id(checkout: Path, name: str) -> str:
    """Return a name that is unique to the checkout and `name`. It is the prefix of the names of everything
    that the cluster creates.
    """
    digest = hashlib.sha256(f"{checkout}\0{name}".encode()).hexdigest()[:6]
    return f"{name}-{digest}"


def link_name(identity: str, index: int | None = None) -> str:
    """Return the name of the cluster's bridge, or of node `index`'s link. Linux allows 15 characters."""
    digest = hashlib.sha256(identity.encode()).hexdigest()[:7]
    return f"cv{digest}" if index is None else f"cv{digest}n{index}"


def choose_block(identity: str, taken: Collection[int], routes: Iterable[str]) -> int:
    """Return an address block that no other cluster has and that overlaps no route of the machine.

    The search starts at a block that depends on the identity, so a cluster usually keeps its addresses.
    """
    networks = [ipaddress.ip_network(route, strict=False) for route in routes]
    start = int(hashlib.sha256(identity.encode()).hexdigest(), 16)
    for step in range(BLOCKS):
        block = (start + step) % BLOCKS
        own = ipaddress.ip_network(Addresses(block).network)
        if block not in taken and not any(own.overlaps(network) for network in networks):
            return block
    raise ClusterError(
        f"no free address range in 10.{FIRST}.0.0 .. 10.{FIRST + BLOCKS - 1}.0.0: {len(taken)} clusters use"
        " some, and routes of this machine overlap the others; take a cluster down"
    )
