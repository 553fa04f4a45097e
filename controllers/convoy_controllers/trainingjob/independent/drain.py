"""Ends all Independent pods of a job."""

from __future__ import annotations

from collections.abc import Iterable

from convoy_controllers.children import Delete, delete_pod
from convoy_controllers.liveness.lost_nodes import why_lost
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.views import PodView
from convoy_controllers.workers.pod_ends import ended
from convoy_crds.terms import ConditionType


def drained(observed: Observed, pods: Iterable[PodView]) -> list[Delete]:
    """Return the deletions of those of `pods`, Independent pods, that still run. Their programs get SIGTERM
    and the pods' grace period. Pods that have ended stay for their logs.
    """
    uid = observed.job.metadata.uid
    found = []
    for pod in pods:
        node = observed.nodes.get(pod.node or "")
        lost = node is not None and bool(why_lost(node, ()))
        if pod.owner_uid != uid or ended(pod) or (pod.deleting and not lost):
            continue
        found.append(delete_pod(pod.name, pod.uid, grace_seconds=0 if lost else None))
    return found


def clear(draft: Draft) -> None:
    """Remove the records of Independent slots, and the conditions about them."""
    status = draft.status
    status.internal.independent = []
    status.independent = ""
    draft.drop(ConditionType.INDEPENDENT_READY)
    draft.drop(ConditionType.SPOT_POOL_READY)
    for role in status.roles:
        if role.independent is not None:
            role.ready = 0
