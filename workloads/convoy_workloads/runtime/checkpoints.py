"""Where a rank's states are kept: in the memory of the job's nodes, or in a folder of this machine."""

from __future__ import annotations

from typing import Any

from convoy_workloads.runtime.checkpointer import Checkpointer
from convoy_workloads.runtime.folder import storage
from convoy_workloads.runtime.folder.checkpoints import FolderCheckpoints, of_rank_0
from convoy_workloads.runtime.place import Place
from convoy_workloads.runtime.tiers.checkpoints import MemoryCheckpoints
from convoy_workloads.runtime.tiers.told import Told


def open_checkpoints(place: Place, group: Any = None, told: Told | None = None) -> Checkpointer | None:
    """The checkpoints of the job at `place`; None when it keeps none. All ranks of `group` call it. DataError
    when this process may not write to the folder.

    Nobody counts the incarnations of a program that is started by hand: its own is one more than the folder
    has seen.
    """
    if place.in_memory:
        return MemoryCheckpoints(place, group, told=told)
    root = place.checkpoint_dir
    if root is None:
        return None
    storage.must_be_writable(root)
    incarnation = place.incarnation
    if not incarnation:
        incarnation = of_rank_0(storage.newest_incarnation(root) + 1, group)
    return FolderCheckpoints(root, incarnation, place.rank, place.checkpoint_seconds, group)
