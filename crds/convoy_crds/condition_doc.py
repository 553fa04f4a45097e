"""The form of the documentation of conditions, and groups of reasons that several conditions have."""

from __future__ import annotations

from dataclasses import dataclass

from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason

EVENTS = "Events"
"""Value of `ConditionDoc.name` in an entry for reasons that appear only in Events."""
HISTORY = "status.history"
"""Value of `ConditionDoc.name` in an entry for reasons in `status.history` of a NodeHealth. These reasons
also appear in Events.
"""
BREAKER = "status.breaker"
"""Value of `ConditionDoc.name` in an entry for reasons in `status.breaker` of a GuardPolicy."""


@dataclass(frozen=True, slots=True)
class ConditionDoc:
    """An entry about one condition of a kind and its reasons. An entry may instead be about reasons that
    appear outside of conditions; its name is then `EVENTS`, `HISTORY` or `BREAKER`.
    """

    kind: str
    name: str
    true_means: str
    """The situation in which the condition is True. In an entry that is not about a condition: the subject
    of the reasons.
    """
    reasons: tuple[Reason, ...]
    page: str = ""
    """Name of the page in docs/runbooks/conditions that explains the reasons of this entry, without `.md`.
    If an earlier entry contains the same reason, the page of the earlier entry explains it. Empty if
    earlier entries contain all reasons.
    """


CONTAINERS = (
    Reasons.WAITING_FOR_PODS,
    Reasons.WAITING_FOR_AGENT,
    Reasons.UNSCHEDULABLE,
    Reasons.IMAGE_PULL,
    Reasons.CONTAINER_CONFIG,
    Reasons.CONTAINER_FAILING,
    Reasons.POD_NOT_STARTING,
    Reasons.POD_REJECTED,
    Reasons.POD_CONFLICT,
    Reasons.STARTING_PODS,
    Reasons.FENCING,
    Reasons.FENCING_COMPANY,
    Reasons.FENCING_ANSWERED,
)
"""Reasons why pods are not up yet."""
GANG = (
    Reasons.GANG_MISSING,
    Reasons.GANG_SPLIT,
    Reasons.GANG_REFUSED,
    Reasons.UNKNOWN_TOPOLOGY_KEY,
    Reasons.READING_ROOM,
    Reasons.NO_ROOM_TOGETHER,
    Reasons.NEVER_TOGETHER,
    Reasons.MAKING_ROOM,
)
"""Reasons why Convoy does not create a gang's pods yet."""
QUEUE = (
    Reasons.QUEUE_WAITING,
    Reasons.QUEUE_EVICTED,
    Reasons.QUEUE_CHANGED,
    Reasons.QUEUE_LOST,
    Reasons.QUEUE_INACTIVE,
    Reasons.QUEUE_MISSING,
    Reasons.QUEUE_REFUSED,
    Reasons.QUEUE_PRIORITY_MISSING,
    Reasons.QUEUE_CONFLICT,
    Reasons.QUEUE_PLACES,
)
"""Reasons why a job's queue does not let its pods run."""
INCURABLE = (Reasons.BAD_PARAMS_EXIT, Reasons.DATA_ERROR, Reasons.COMMAND_NOT_FOUND, Reasons.NO_PYTHON)
"""Faults that end the job, because a restart cannot help."""
FAULTS = (
    Reasons.RANK_FAILED,
    Reasons.RANK_KILLED,
    Reasons.RANK_CRASHED,
    Reasons.RANK_OOM,
    Reasons.CONTAINER_OOM,
    Reasons.RANK_HUNG,
    Reasons.RANK_NOT_ENDING,
    Reasons.ENDED_EARLY,
    Reasons.PEER_LOST,
    Reasons.PREEMPTED,
    Reasons.STORE_UNAVAILABLE,
    Reasons.POD_LOST,
    Reasons.INIT_FAILED,
    Reasons.CONTAINER_FAILED,
    Reasons.CONTAINER_STOPPED,
    Reasons.POD_DEADLINE,
    Reasons.STORAGE_LIMIT,
    Reasons.POD_UNFIT,
    Reasons.POD_NOT_ADMITTED,
    Reasons.POD_DELETED,
    Reasons.POD_PREEMPTED,
    Reasons.POD_EVICTED,
    Reasons.NODE_DRAINED,
    Reasons.STRAGGLER_SWAPPED,
    Reasons.SUSPECT_SWAPPED,
    Reasons.YIELDED,
    Reasons.NODE_LOST,
    Reasons.REGROW,
    Reasons.RESTART_REQUESTED,
    Reasons.STATUS_BEHIND,
)
"""Faults after which the ranks restart."""
