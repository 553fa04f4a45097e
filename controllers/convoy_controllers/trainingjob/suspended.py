"""Plans a job that `spec.suspend` or its queue stops: its pods save their state and end, and the job stays.

A suspension that has started is always completed. A queue may change the template in the same update that
suspends the job, and may set `suspend: false` at any later time. Pods of one template must never run beside
pods of another.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from convoy_controllers.children import Delete, delete_pod
from convoy_controllers.plan import Plan
from convoy_controllers.trainingjob import checkpointing, claiming, digests, formation, gang, nodes, queueing
from convoy_controllers.trainingjob.independent.drain import clear
from convoy_controllers.trainingjob.independent.scope import is_independent, split
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.pod_changes import delete_from_lost_node, stranded, unfenced_seconds
from convoy_controllers.trainingjob.queueing import Stop
from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.views import PodView
from convoy_controllers.workers.pod import pod_incarnation
from convoy_controllers.workers.pod_ends import ended
from convoy_controllers.workers.violation import Violation
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.summaries import saves
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob_status import PendingRecord, Phase, TrainingJobStatus

AT_ONCE_SECONDS = 1
"""Shortest grace period, in seconds, with which a kubelet still reports the end of a pod."""


def due(observed: Observed) -> bool:
    """Return True while the job must be suspended, or while an earlier suspension is not complete.

    If a user suspends and resumes the job within a short time, the operator may see only the spec after
    both updates. A changed layout then shows that the job was suspended, because only an update that
    suspends the job may change the layout. The existing pods must end, because they have the old layout.
    """
    job = observed.job
    if job.spec.suspend:
        return True
    if job.status.phase is Phase.SUSPENDING:
        return any(pod.owner_uid == job.metadata.uid for pod in observed.pods)
    if job.status.phase not in (Phase.STARTING, Phase.RUNNING, Phase.RESTARTING):
        return False
    # An earlier release of the operator stored no layout. An empty layout therefore does not show a change.
    return job.status.internal.layout not in ("", digests.layout_digest(job))


def plan(observed: Observed, now: datetime, stop: Stop | None = None) -> Plan:
    """Delete the pods of a suspended job. `stop`: the reason why its queue does not let it run; None if only
    its user has suspended it.

    Pods that joined an incarnation keep their own grace period, in which the launchers pass SIGTERM on to
    the ranks. Pods that never had ranks are deleted at once.
    """
    draft = Draft(split(observed).members, now)
    status = draft.status
    clear(draft)
    draft.merge_reports(status.incarnation)
    own = [pod for pod in observed.pods if pod.owner_uid == observed.job.metadata.uid]
    formation.disband(status)
    status.start_time = None
    status.internal.pending = PendingRecord()
    claiming.release(draft)
    lost = nodes.lost(observed)
    if own:
        found = _stopping(observed, len(own), stop)
        draft.phase(Phase.SUSPENDING, found.reason, found.message)
        draft.condition(ConditionType.SUSPENDED, False, found.reason, found.message)
        draft.condition(ConditionType.RUNNING, False, found.reason, found.message)
        queueing.report(draft, found)
    else:
        reason, message = _describe_suspended(observed, status)
        draft.phase(Phase.SUSPENDED, reason, message)
        draft.condition(ConditionType.SUSPENDED, True, reason, message)
        draft.condition(ConditionType.RUNNING, False, reason, message)
        draft.drop(ConditionType.RESTARTING)
        draft.drop(ConditionType.SCHEDULED)
        queueing.leave(draft)
    return Plan(
        status=draft.stored(),
        children=tuple(
            deletion for pod in own if (deletion := _deletion(observed, pod, own, lost, status)) is not None
        ),
        # A scheduler with queues keeps room for a PodGroup without pods.
        prune=() if own else gang.written(observed),
        events=tuple(draft.events),
        requeue_after=_recheck_seconds(observed, own, lost),
    )


def _stopping(observed: Observed, left: int, stop: Stop | None) -> Violation:
    """Return the reason and message for a job whose pods end. `left`: number of pods that are left."""
    if stop is None:
        reason = Reasons.SUSPENDING
        return Violation(reason, reason.format(left=left, state=_describe_stop(observed)))
    waits = "; the job then waits in its queue" if queueing.queue_name(observed.job) else ""
    return stop.violation(_describe_saving(observed) + waits)


def _recheck_seconds(observed: Observed, own: list[PodView], lost: Collection[str]) -> float | None:
    """Return the seconds until the operator must check again whether to delete pods by force; None if no
    pod may need it. No watch event announces this time.
    """
    if any(pod.node in lost for pod in own):
        return 1.0
    away = (observed.nodes.get(pod.node or "") for pod in own)
    return 5.0 if any(node is not None and not node.agent_ready for node in away) else None


def _deletion(
    observed: Observed, pod: PodView, own: list[PodView], lost: Collection[str], status: TrainingJobStatus
) -> Delete | None:
    """Return the deletion of a pod, which its kubelet carries out. The pod is deleted by force instead if
    its node is lost, or if it has ended and its node's agent is silent. Return None if the pod is
    already being deleted and needs no force.
    """
    if pod.node in lost:
        unfenced = unfenced_seconds(observed, {one.name: one for one in own}, pod)
        return delete_from_lost_node(pod, unfenced)
    if pod.deleting:
        # While its agent is away, the kubelet cannot unmount the CSI volume and never removes the pod. A pod
        # that has ended is then deleted by force.
        over = ended(pod) and stranded(observed, pod, status)
        return delete_pod(pod.name, pod.uid, grace_seconds=0) if over else None
    # `disband` has reserved the next incarnation. A pod that was created for it has run no rank, so it has no
    # state to save. Its program runs as PID 1 without a SIGTERM handler, so it would end only after the whole
    # grace period.
    # The incarnations of Independent pods are their own, so these pods always get their grace period.
    ran = pod_incarnation(pod) < status.incarnation or is_independent(observed.job, pod)
    return delete_pod(pod.name, pod.uid, grace_seconds=None if ran else AT_ONCE_SECONDS)


def _describe_stop(observed: Observed) -> str:
    """Return the part of the message that says what happens to the job's state while its pods end, and what
    happens afterwards.
    """
    return _describe_saving(observed) + ("" if observed.job.spec.suspend else "; the job resumes afterwards")


def _describe_saving(observed: Observed) -> str:
    """Return the part of the message that says whether the job's state is saved while its pods end."""
    if not saves(observed.job):
        return "the job saves no checkpoints and will start at step 0 again"
    found = next((c for c in observed.job.status.conditions if c.type == ConditionType.CHECKPOINTING), None)
    if found is not None and found.reason in {reason.name for reason in checkpointing.UNSAVED}:
        return f"the last steps may be lost, see condition Checkpointing ({found.reason})"
    return "the ranks save their state"


def _describe_suspended(observed: Observed, status: TrainingJobStatus) -> tuple[Reason, str]:
    """Return the reason and message for a suspended job. The message says at which step it will go on."""
    step = status.progress.step if status.progress else 0
    if not saves(observed.job):
        state = f"stopped after step {step}; it will start at step 0 again, since it saves no checkpoints"
        return Reasons.SUSPENDED, Reasons.SUSPENDED.format(state=state)
    saved = status.saved.step if status.saved else None
    if step and (saved is None or saved < step):
        newest = (
            f"; its newest checkpoint is of step {saved}" if saved is not None else " without a checkpoint"
        )
        state = f"stopped after step {step}{newest}"
        return Reasons.SUSPENDED_UNSAVED, Reasons.SUSPENDED_UNSAVED.format(state=state)
    state = f"it will go on after step {saved}" if saved is not None else "it has not started yet"
    return Reasons.SUSPENDED, Reasons.SUSPENDED.format(state=state)
