"""Counts the memory that the ranks of each pod request, and reports it for the operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from convoy_agents.pods.assignment import Assignment

ReportUse = Callable[[str, int, int, int], None]
"""A callback for a changed use of a pod. It gets the pod's uid, the incarnation, the bytes that all ranks of
the pod need for their buffers (0 until all have requested them), and the job's limit on this node.
"""


@dataclass(slots=True)
class _PodUse:
    incarnation: int
    wanted: dict[int, int] = field(default_factory=dict)
    """Bytes by rank."""
    reported: tuple[int, int] | None = None
    """The total and the limit of the last report; None before the first."""


class MemoryUse:
    """The requests for memory of the ranks on one node, by pod."""

    def __init__(self, report: ReportUse) -> None:
        self._report = report
        self._pods: dict[str, _PodUse] = {}

    def record(self, plan: Assignment, rank: int, wanted: int, limit: int) -> None:
        """Record a request of a rank. `wanted`: bytes of all its buffers for full saves; 0 if it requests
        none.
        """
        use = self._pods.get(plan.pod_uid)
        if use is None or use.incarnation < plan.incarnation:
            use = self._pods[plan.pod_uid] = _PodUse(plan.incarnation)
        if use.incarnation != plan.incarnation:
            return
        if wanted:
            use.wanted[rank] = wanted
        total = sum(use.wanted.values()) if use.wanted.keys() >= set(plan.ranks) else 0
        if use.reported != (total, limit):
            use.reported = (total, limit)
            self._report(plan.pod_uid, plan.incarnation, total, limit)

    def drop_pod(self, uid: str) -> None:
        """Drop the requests of a pod that left the node."""
        self._pods.pop(uid, None)
