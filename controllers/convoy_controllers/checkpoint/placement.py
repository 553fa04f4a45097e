"""Decides which nodes keep copies of a node's shards, by rendezvous hashing with bounded loads over failure
domains. The node whose shards are copied is the owner. A node that keeps copies is a host.

Each pair (owner, host) has a weight that depends only on the two names. If a node joins or leaves, only the
copies that involve this node move (Thaler and Ravishankar 1998, "Using name-based mappings to increase hit
rates"). No host gets more owners than its capacity, because memory is reserved in advance (Mirrokni et al.
2018, "Consistent hashing with bounded loads"). Among hosts with free capacity, those in another failure
domain come first. `Placed.apart` is False if an owner has a host in its own domain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Host:
    """A node that may keep copies of other nodes' shards."""

    node: str
    domain: str = ""
    """The node's rack or zone; empty if it is not known."""
    capacity: int = 0
    """Number of owners whose copies fit into the node's memory. With 0, the capacity is the number of
    copies that each owner gets.
    """


@dataclass(frozen=True, slots=True)
class Placed:
    """The hosts that keep the copies of one owner's shards."""

    hosts: tuple[str, ...]
    apart: bool
    """True if all hosts are in other failure domains than the owner."""


def place(nodes: Sequence[Host], copies: int) -> dict[str, Placed]:
    """Return the hosts that keep the copies of each node's shards, by name of the node. A node gets fewer
    than `copies` hosts if there are too few nodes.
    """
    unique = sorted({one.node: one for one in nodes}.values(), key=lambda one: one.node)
    weights = _weights([one.node for one in unique])
    domains = np.array([one.domain for one in unique])
    capacities = np.array([one.capacity or copies for one in unique], dtype=np.int64)
    far = (domains[:, None] != domains[None, :]) & (domains[:, None] != "") & (domains[None, :] != "")
    load = np.zeros(len(unique), dtype=np.int64)
    chosen: dict[int, list[int]] = {}
    for owner in _owner_order(unique):
        over = np.maximum(load - capacities + 1, 0)
        # lexsort sorts by its last key first, so the order is: free capacity, other failure domain, weight.
        ranked = np.lexsort((np.iinfo(np.uint64).max - weights[owner], ~far[owner], over))
        chosen[owner] = [int(host) for host in ranked if host != owner][: min(copies, len(unique) - 1)]
        load[chosen[owner]] += 1
    _exchange_hosts(chosen, far)
    return {
        unique[owner].node: Placed(
            tuple(unique[host].node for host in hosts), bool(hosts) and bool(far[owner, hosts].all())
        )
        for owner, hosts in chosen.items()
    }


def _exchange_hosts(chosen: dict[int, list[int]], far: NDArray[np.bool_]) -> None:
    """Exchange hosts between pairs of owners. An exchange gives one owner a host in another failure domain,
    and takes no such host from the other owner.
    """
    for owner, hosts in chosen.items():
        for index, near in enumerate(hosts):
            if far[owner, near] or not far[owner].any():
                continue
            for other, theirs in chosen.items():
                better = next(
                    (
                        at
                        for at, host in enumerate(theirs)
                        if far[owner, host]
                        and host not in hosts
                        and near not in theirs
                        and near != other
                        # After the exchange, the other owner must have at least as many hosts in other
                        # failure domains.
                        and (far[other, near] or not far[other, host])
                    ),
                    None,
                )
                if better is not None:
                    hosts[index], theirs[better] = theirs[better], near
                    break


def _owner_order(nodes: Sequence[Host]) -> list[int]:
    """Return the indices of the owners in the order in which they choose their hosts. The order depends
    only on their names and domains.

    Owners in the largest domain choose first, because fewer hosts are outside that domain.
    """
    size: dict[str, int] = {}
    for one in nodes:
        size[one.domain] = size.get(one.domain, 0) + 1
    return sorted(range(len(nodes)), key=lambda index: (-size[nodes[index].domain], nodes[index].node))


def _weights(names: Sequence[str]) -> NDArray[np.uint64]:
    """Return the weights, one row per owner: splitmix64 (Steele et al. 2014) over the digests of both
    names.
    """
    seeds = np.array(
        [int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") for name in names],
        dtype=np.uint64,
    )
    with np.errstate(over="ignore"):
        mixed = seeds[:, None] * np.uint64(0x9E3779B97F4A7C15) + seeds[None, :]
        mixed ^= mixed >> np.uint64(30)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(27)
        mixed *= np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return mixed
