"""A job held by `spec.suspend`: its pods save their state and go, the job keeps its place.

A suspension is carried through once it has begun. A queue may change the template in the update that suspends
the job, and set `suspend: false` again at any time: pods of one template never run beside those of another.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from convoy_controllers.children import Delete, delete_pod
from convoy_controllers.plan import Plan
from convoy_controllers.trainingjob import checkpointing, formation, nodes
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.pod_changes import delete_from_lost_node, stranded, unfenced_seconds
from convoy_controllers.trainingjob.pod_ends import ended
from convoy_controllers.trainingjob.pods import pod_incarnation
from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.views import PodView
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob_status import Phase, TrainingJobStatus

AT_ONCE_SECONDS = 1
"""The shortest grace period with which a kubelet still says when a pod has ended."""


def due(observed: Observed) -> bool:
    """Return True while the job is to be suspended, or is still being suspended after `suspend: false`.

    The operator may see an update that suspends and one that resumes as one. Then the layout alone, which the
    API server lets no other update change, shows that the pods are those of the job before its suspension.
    """
    job = observed.job
    if job.spec.suspend:
        return True
    if job.status.phase is Phase.SUSPENDING:
        return any(pod.owner_uid == job.metadata.uid for pod in observed.pods)
    if job.status.phase not in (Phase.STARTING, Phase.RUNNING, Phase.RESTARTING):
        return False
    # An earlier operator has left no layout.
    return job.status.layout not in ("", formation.layout_digest(job))


def plan(observed: Observed, now: datetime) -> Plan:
    """Deletes the pods: those of an incarnation with their own grace period, in which the launchers hand
    SIGTERM to the ranks; those that never had ranks at once."""
    draft = Draft(observed, now)
    status = draft.status
    draft.merge_reports(status.incarnation)
    own = [pod for pod in observed.pods if pod.owner_uid == observed.job.metadata.uid]
    formation.disband(status)
    status.start_time = status.pending_since = None
    status.pending_cause = ""
    lost = nodes.lost(observed)
    if own:
        message = Reasons.SUSPENDING.format(left=len(own), state=_leaving(observed))
        draft.phase(Phase.SUSPENDING, Reasons.SUSPENDING, message)
        draft.condition(ConditionType.SUSPENDED, False, Reasons.SUSPENDING, message)
        draft.condition(ConditionType.RUNNING, False, Reasons.SUSPENDING, message)
    else:
        reason, message = _left(observed, status)
        draft.phase(Phase.SUSPENDED, reason, message)
        draft.condition(ConditionType.SUSPENDED, True, reason, message)
        draft.condition(ConditionType.RUNNING, False, reason, message)
        draft.drop(ConditionType.RESTARTING)
        draft.drop(ConditionType.SCHEDULED)
    return Plan(
        status=draft.stored(),
        children=tuple(
            gone for pod in own if (gone := _deletion(observed, pod, own, lost, status)) is not None
        ),
        events=tuple(draft.events),
        requeue_after=_wait(observed, own, lost),
    )


def _wait(observed: Observed, own: list[PodView], lost: Collection[str]) -> float | None:
    """Seconds until a pod may go without its kubelet, which nothing that is watched shows."""
    if any(pod.node in lost for pod in own):
        return 1.0
    away = (observed.nodes.get(pod.node or "") for pod in own)
    return 5.0 if any(node is not None and not node.agent_ready for node in away) else None


def _deletion(
    observed: Observed, pod: PodView, own: list[PodView], lost: Collection[str], status: TrainingJobStatus
) -> Delete | None:
    """How a pod is to go: by its kubelet, or without one where its node is lost or its agent stays away."""
    if pod.node in lost:
        unfenced = unfenced_seconds(observed, {one.name: one for one in own}, pod)
        return delete_from_lost_node(pod, unfenced)
    if pod.deleting:
        # Its kubelet cannot unmount without the agent.
        over = ended(pod) and stranded(observed, pod, status)
        return delete_pod(pod.name, pod.uid, grace_seconds=0) if over else None
    # A program that begins as PID 1 does not hear SIGTERM yet, and nobody there has anything to save.
    # No rank of the incarnation that `disband` has just reserved has run.
    ran = pod_incarnation(pod) < status.incarnation
    return delete_pod(pod.name, pod.uid, grace_seconds=None if ran else AT_ONCE_SECONDS)


def _leaving(observed: Observed) -> str:
    """Return the words for the state while the pods leave, and for the job afterwards."""
    return _saving(observed) + ("" if observed.job.spec.suspend else "; then the job resumes")


def _saving(observed: Observed) -> str:
    """What becomes of the state while the pods leave."""
    if not observed.job.spec.checkpoint.tiers.any:
        return "there is no place for checkpoints (spec.checkpoint.tiers): it will begin at step 0"
    found = next((c for c in observed.job.status.conditions if c.type == ConditionType.CHECKPOINTING), None)
    if found is not None and found.reason in {reason.name for reason in checkpointing.UNSAVED}:
        return f"their last steps may not be saved, see condition Checkpointing ({found.reason})"
    return "their state is being saved"


def _left(observed: Observed, status: TrainingJobStatus) -> tuple[Reason, str]:
    """Where a suspended job will go on."""
    step = status.progress.step if status.progress else 0
    if not observed.job.spec.checkpoint.tiers.any:
        state = f"it left after step {step} and will begin at step 0: it has no place for checkpoints"
        return Reasons.SUSPENDED, Reasons.SUSPENDED.format(state=state)
    saved = status.checkpoint.step if status.checkpoint else None
    if step and (saved is None or saved < step):
        state = f"it left after step {step}, its newest checkpoint is " + (
            f"of step {saved}" if saved is not None else "none"
        )
        return Reasons.SUSPENDED_UNSAVED, Reasons.SUSPENDED_UNSAVED.format(state=state)
    state = f"it goes on after step {saved}" if saved is not None else "it has not begun"
    return Reasons.SUSPENDED, Reasons.SUSPENDED.format(state=state)
