"""The choice of the checkpoint storage: the memory of the job's nodes, or a folder of this machine."""

from __future__ import annotations

from typing import Any

from convoy_workloads.runtime.checkpointer import Checkpointer
from convoy_workloads.runtime.folder import storage
from convoy_workloads.runtime.folder.checkpoints import FolderCheckpoints, broadcast_from_rank_0
from convoy_workloads.runtime.rank_context import RankContext
from convoy_workloads.runtime.tiers.agent_notices import AgentNotices
from convoy_workloads.runtime.tiers.by_default import DefaultCheckpoints
from convoy_workloads.runtime.tiers.checkpoints import MemoryCheckpoints


def open_checkpoints(
    context: RankContext, group: Any = None, notices: AgentNotices | None = None
) -> Checkpointer | None:
    """Return the checkpoints of the job in `context`; None if the job keeps none. All ranks of `group` call
    this.

    Raises DataError if this process may not write to the folder. A program that was started by hand has no
    incarnation number, so it uses the highest number in the folder plus 1.
    """
    if context.in_memory:
        in_memory = DefaultCheckpoints if context.by_default else MemoryCheckpoints
        return in_memory(context, group, notices=notices)
    root = context.checkpoint_dir
    if root is None:
        return None
    storage.ensure_writable(root)
    incarnation = context.incarnation
    if not incarnation:
        incarnation = broadcast_from_rank_0(storage.newest_incarnation(root) + 1, group)
    return FolderCheckpoints(root, incarnation, context.rank, context.checkpoint_seconds, group)
