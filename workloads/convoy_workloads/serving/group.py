"""The ranks of one replica. Rank 0 serves; the other ranks compute a part of each iteration."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist

from convoy_workloads.runtime import incarnation_key
from convoy_workloads.runtime.errors import PeerLost
from convoy_workloads.serving.group_store import AuthenticatedStore
from convoy_workloads.serving.renewing import renewing

FORM_SECONDS = 3600.0
"""Seconds for which a rank that has loaded waits for the others, which may load for longer."""
PEER_SECONDS = 30.0
"""Seconds without a message after which a peer is lost. Rank 0 sends at least one message a second."""

_stores: list[object] = []
"""The stores of this process, kept until it ends. The process group does not keep an AuthenticatedStore, and
rank 0 would end the server of its store while other ranks still read the addresses of their peers.
"""


@dataclass(frozen=True)
class Group:
    """The position of a rank in its replica."""

    rank: int = 0
    world: int = 1


def form(group: Group, renew: Callable[[], None]) -> None:
    """Form the process group. Every rank calls this after it has loaded its model, so that a rank that loads
    for long does not look like a lost one. `renew` is called as long as this rank waits.

    With the key of the incarnation, the ranks authenticate each other. Raises PeerLost if the group does not
    form.
    """
    if group.world == 1:
        return
    try:
        renewing(renew, lambda: _connect(group), "convoy-group")
    except Exception as error:
        raise PeerLost(f"the ranks of this replica have not formed a group: {error}") from error


def _connect(group: Group) -> None:
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    key = incarnation_key.read()
    plain = dist.TCPStore(  # type: ignore[attr-defined]
        address, port, group.world, is_master=group.rank == 0, timeout=timedelta(seconds=FORM_SECONDS)
    )
    store = AuthenticatedStore(plain, key) if key else plain
    _stores.append(store)
    store.set(f"loaded-{group.rank}", "")
    loaded = [f"loaded-{rank}" for rank in range(group.world)]
    store.wait(loaded, timedelta(seconds=FORM_SECONDS))
    for name in loaded:
        store.get(name)
    dist.init_process_group(
        "gloo",
        store=dist.PrefixStore("serving", store),  # type: ignore[attr-defined]
        rank=group.rank,
        world_size=group.world,
        timeout=timedelta(seconds=PEER_SECONDS),
    )
