"""Plans a ServingJob that is being deleted or suspended."""

from __future__ import annotations

from datetime import datetime

from convoy_controllers.children import Delete, delete_pod
from convoy_controllers.placement import gang_state
from convoy_controllers.plan import Plan
from convoy_controllers.servingjob import children, conditions, deadnode, revision
from convoy_controllers.servingjob.draft import Draft
from convoy_controllers.servingjob.observed import Observed
from convoy_controllers.servingjob.validity import violation
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.servingjob_status import RevisionStatus, RolloutRecord
from convoy_crds.terms import ConditionType


def deleted(observed: Observed) -> Plan:
    """Delete the pods on lost nodes by force. Kubernetes deletes all other objects of the job, but waits for
    the kubelets of these nodes.
    """
    lost = deadnode.lost(observed)
    hanging = [pod for pod in observed.own_pods if pod.node in lost and pod.deleting]
    return Plan(
        children=tuple(delete_pod(pod.name, pod.uid, grace_seconds=0) for pod in hanging),
        requeue_after=1.0 if hanging else None,
    )


def suspended(observed: Observed, now: datetime) -> Plan:
    """Drain and delete all pods. The Service and the revisions stay."""
    draft = Draft(observed, now)
    status = draft.status
    left = len(observed.own_pods)
    reason = Reasons.SUSPENDING if left else Reasons.SUSPENDED
    state = "the replicas finish their requests in flight" if left else "no replica runs"
    message = reason.format(left=left, state=state)
    draft.condition(ConditionType.SUSPENDED, True, reason, message)
    draft.condition(ConditionType.AVAILABLE, False, reason, message)
    conditions.set_valid(draft, violation(observed))
    for kind in (
        ConditionType.PROGRESSING,
        ConditionType.DEGRADED,
        ConditionType.SLO_MET,
        ConditionType.STRAGGLER_DETECTED,
        ConditionType.CHECKPOINTING,
        ConditionType.ABLE_TO_SCALE,
        ConditionType.SCALING_ACTIVE,
        ConditionType.SCALING_LIMITED,
    ):
        draft.drop(kind)
    status.internal.groups = []
    status.checkpoint, status.packed = None, ""
    status.internal.rollout = RolloutRecord(revision=status.update_revision)
    draft.count({})
    used = {status.update_revision, status.current_revision}
    kept = revision.kept(observed.revisions, used)
    status.revisions = [RevisionStatus(name=one.name, number=one.number) for one in kept]
    return Plan(
        status=draft.stored(),
        children=(
            *_deletions(observed),
            *(revision.apply(observed.job, one) for one in kept),
            *children.reached(observed),
        ),
        prune=(*children.PRUNED, *gang_state.written(observed.served)),
        events=tuple(draft.events),
        requeue_after=5.0 if left else None,
        # The autoscaler starts anew with the replicas: times from before would count as idle time.
        memory={},
    )


def _deletions(observed: Observed) -> list[Delete]:
    lost = deadnode.lost(observed)
    return [
        delete_pod(pod.name, pod.uid, grace_seconds=0 if pod.node in lost else None)
        for pod in observed.own_pods
        if pod.node in lost or not pod.deleting
    ]
