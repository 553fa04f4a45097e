"""Which nodes keep copies of a node's shards: rendezvous hashing with bounded loads over failure domains.

Each pair (owner, host) has a weight that depends on the two names alone, so a node that comes or goes moves
only what it must (Thaler and Ravishankar 1998, "Using name-based mappings to increase hit rates"). A host
takes no more owners than it has room for (Mirrokni et al. 2018, "Consistent hashing with bounded loads"):
memory is reserved before it is known who needs it. Among those with room, hosts in another domain come first;
where there is none, the result says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Host:
    """A node that may keep copies."""

    node: str
    domain: str = ""
    """Rack or zone; empty when it is not known."""
    room: int = 0
    """Owners whose copies fit into its memory; 0 for as many as everybody keeps copies."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the copies of one owner's shards go."""

    hosts: tuple[str, ...]
    apart: bool
    """Whether every one of them is in another domain than the owner."""


def place(nodes: Sequence[Host], copies: int) -> dict[str, Placed]:
    """The hosts of every node's copies, by the node's name. Fewer than `copies` where nodes are too few."""
    unique = sorted({one.node: one for one in nodes}.values(), key=lambda one: one.node)
    weights = _weights([one.node for one in unique])
    domains = np.array([one.domain for one in unique])
    room = np.array([one.room or copies for one in unique], dtype=np.int64)
    far = (domains[:, None] != domains[None, :]) & (domains[:, None] != "") & (domains[None, :] != "")
    load = np.zeros(len(unique), dtype=np.int64)
    chosen: dict[int, list[int]] = {}
    for owner in _owner_order(unique):
        over = np.maximum(load - room + 1, 0)
        # Sorted by the last key first: who has room, who is far, who is heaviest.
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
    """Lets owners that were left with near hosts change with others to whom that makes no difference."""
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
                        # Nobody else may lose by it.
                        and (far[other, near] or not far[other, host])
                    ),
                    None,
                )
                if better is not None:
                    hosts[index], theirs[better] = theirs[better], near
                    break


def _owner_order(nodes: Sequence[Host]) -> list[int]:
    """Owners in an order that their names alone decide. The largest domains choose first: they have least
    choice.
    """
    size: dict[str, int] = {}
    for one in nodes:
        size[one.domain] = size.get(one.domain, 0) + 1
    return sorted(range(len(nodes)), key=lambda index: (-size[nodes[index].domain], nodes[index].node))


def _weights(names: Sequence[str]) -> NDArray[np.uint64]:
    """One row per owner; splitmix64 (Steele et al. 2014) over the two names' digests."""
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
