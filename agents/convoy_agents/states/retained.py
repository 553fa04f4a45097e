"""Which states stay in memory. Pure.

A saved state is a shard in TierCheck's memory. Its step is the time of the save in Unix milliseconds.
"""

from __future__ import annotations

from collections.abc import Collection

from convoy_agents.tiercheck.shard_store import ShardStore
from convoy_controllers.checkpoint.records import Manifest

SHARD = "0"
"""Name of a state's shard, and owner of its buffers: rank 0 of the replica writes it."""


def age_order(manifest: Manifest) -> tuple[int, int]:
    """Return the sort key of a state: the time of its save, then the incarnation that saved it."""
    return manifest.generation.step, manifest.generation.incarnation


def newest(store: ShardStore) -> Manifest | None:
    """Return the newest complete state in a memory; None if there is none."""
    return max(store.manifests.values(), key=age_order, default=None)


def drop_superseded(store: ShardStore, kept: Collection[str] = ()) -> None:
    """Drop all states but the newest and those in `kept`, and older ones that are in transfer."""
    last = newest(store)
    if last is None:
        return
    for key in set(store.manifests) - {last.id, *kept}:
        store.drop(key)
    for incoming in tuple(store.incoming):
        if age_order(incoming.manifest) < age_order(last):
            store.incoming.drop(incoming.manifest.id)


def superseded(store: ShardStore, kept: Collection[str] = ()) -> bool:
    """Return True if `drop_superseded` would drop a complete state."""
    last = newest(store)
    return last is not None and bool(set(store.manifests) - {last.id, *kept})
