"""The pods that a job lacks, and those that have to go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from convoy_controllers.children import Delete, delete_pod
from convoy_controllers.liveness.fence import REPLACE_SECONDS
from convoy_controllers.trainingjob import nodes, offenders
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.pod_ends import ended, failed
from convoy_controllers.trainingjob.pods import pod, pod_incarnation, with_incarnation
from convoy_controllers.trainingjob.validity import Violation
from convoy_controllers.views import NodeView, PodView
from convoy_crds.layout import Slot, present
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import ANNOTATION_INTENT
from convoy_crds.trainingjob_status import RestartScope, TrainingJobStatus

STRANDED_SECONDS = 30.0
"""A pod that has not met its agent while that was silent for so long had better go where there is one."""
MISPLACED_SECONDS = 2.0
"""Age at which a pod is replaced that was placed on a node which was lost already."""
RETRY_SECONDS = 60.0
"""Age at which a pod that the job runs without, and that has ended, is made anew."""


@dataclass(slots=True)
class PodChanges:
    """Pods to create and to delete."""

    create: list[dict[str, Any]] = field(default_factory=list)
    delete: list[Delete] = field(default_factory=list)
    fencing: Violation | None = None
    """Why a pod of a lost node is not replaced yet."""
    waits: list[float] = field(default_factory=list)
    """Seconds until one of the pods could be dealt with."""


def pod_changes(
    observed: Observed,
    status: TrainingJobStatus,
    layout: tuple[Slot, ...],
    own: Mapping[str, PodView],
    lost: Mapping[str, str],
    now: datetime,
) -> PodChanges:
    """Return the pods to delete, with nothing to create yet.

    These are pods that have ended, are superfluous, lie on lost nodes, are condemned by the last restart, or,
    where none of their ranks run, are not as the spec now asks.
    """
    found = PodChanges()
    by_pod = {slot.pod: slot for slot in layout}
    running = _running(observed, status)
    for one in own.values():
        if one.node in lost:
            if late := _misplaced(one, one.name in running, status, now):
                found.waits.append(late)
            else:
                _on_lost_node(observed, one, own, found)
        elif one.deleting:
            # Its kubelet cannot unmount without the agent.
            over = ended(one) and stranded(observed, one, status)
            found.delete += [delete_pod(one.name, one.uid, grace_seconds=0)] if over else []
        elif one.name in running:
            # One that ended well still stands for its ranks.
            found.delete += [delete_pod(one.name, one.uid)] if failed(one) else []
        elif running and one.name in by_pod and (left := _young(one, now)):
            found.waits.append(left)
        elif one.name not in by_pod or _must_go(observed, one, by_pod[one.name], status):
            found.delete.append(delete_pod(one.name, one.uid))
    _leftovers(observed, lost, found)
    return found


def missing(
    observed: Observed,
    status: TrainingJobStatus,
    layout: tuple[Slot, ...],
    lost: Mapping[str, str],
    deleted: Sequence[Delete],
) -> list[dict[str, Any]]:
    """Return the manifests of the pods that the layout lacks once `deleted` are gone."""
    # A name is free once its pod is deleted by force. Later nobody knows any more where that was.
    freed = {gone.name for gone in deleted if gone.grace_seconds == 0}
    names = {one.name for one in observed.pods} - freed
    # The label that leads pods to a lost node may still be on its way off.
    avoid = {*offenders.avoided(status.offenders, observed.job.spec.recovery), *lost}
    return [
        with_incarnation(pod(observed.job, observed.engine, slot), status.incarnation, avoid)
        for slot in layout
        if slot.pod not in names and slot.pod not in observed.create_errors
    ]


def _running(observed: Observed, status: TrainingJobStatus) -> set[str]:
    """Pods of the incarnation that has formed."""
    if not status.membership:
        return set()
    return {slot.pod for slot in present(observed.job.model_copy(update={"status": status}))}


def _leftovers(observed: Observed, lost: Mapping[str, str], found: PodChanges) -> None:
    """Pods of a deleted job of this name that hang on lost nodes: nobody else would ever free their names.

    Whether that job was fenced Strict nobody knows any more: so they are taken for it.
    """
    for one in observed.pods:
        ours = one.owner_uid == observed.job.metadata.uid or ANNOTATION_INTENT not in one.annotations
        if ours or not one.deleting or one.node not in lost:
            continue
        left = 0.0 if ended(one) else nodes.unfenced_seconds(observed.nodes[one.node or ""], {})
        if left > 0:
            found.waits.append(min(left, 1.0))
        if (gone := off_lost_node(one, left)) is not None:
            found.delete.append(gone)


def _misplaced(one: PodView, running: bool, status: TrainingJobStatus, now: datetime) -> float:
    """Seconds until a pod is replaced that went to a lost node after that was known; 0 for all others, and
    for one that is `running`.

    Its place may be taken there again and again, until the node's label is off it.
    """
    if running or pod_incarnation(one) < status.incarnation:
        return 0.0
    return _until_age(one, MISPLACED_SECONDS, now)


def _young(one: PodView, now: datetime) -> float:
    """Seconds for which a pod that has ended, and that nobody waits for, is left alone; 0 for all others."""
    return _until_age(one, RETRY_SECONDS, now) if ended(one) else 0.0


def _until_age(one: PodView, seconds: float, now: datetime) -> float:
    """Seconds until a pod is so old; never more than that, whatever the two clocks show."""
    return min(max(0.0, one.created + seconds - now.timestamp()), seconds)


def stranded(observed: Observed, one: PodView, status: TrainingJobStatus) -> bool:
    """Whether an incarnation that forms waits for a pod on a node that lives, but whose agent is away."""
    node = observed.nodes.get(one.node or "")
    if status.membership or node is None or node.agent_ready:
        return False
    return node.silent_seconds >= STRANDED_SECONDS


def _must_go(observed: Observed, one: PodView, slot: Slot, status: TrainingJobStatus) -> bool:
    """Whether a pod of no formed incarnation has ended, is condemned or stranded, or is not as the spec
    asks."""
    if ended(one) or stranded(observed, one, status):
        return True
    if not status.membership and _condemned(one, status):
        return True
    wanted = pod(observed.job, observed.engine, slot)["metadata"]["annotations"][ANNOTATION_INTENT]
    return bool(one.annotations.get(ANNOTATION_INTENT) != wanted)


def _condemned(one: PodView, status: TrainingJobStatus) -> bool:
    """Whether the restart that reserved this incarnation replaces the pod."""
    last = status.restarts.last
    if last is None or last.scope is RestartScope.PROCESS:
        return False
    if last.scope is RestartScope.POD and last.pod != one.name:
        return False
    return pod_incarnation(one) < status.incarnation


def unfenced_seconds(observed: Observed, own: Mapping[str, PodView], one: PodView) -> float:
    """Seconds until a pod on a lost node can no longer run ranks under Strict fencing; 0 when it cannot."""
    if ended(one) or not nodes.strict(observed.job):
        return 0.0
    return nodes.unfenced_seconds(observed.nodes[one.node or ""], _others(observed, own, one))


def off_lost_node(one: PodView, unfenced: float) -> Delete | None:
    """How a pod goes from a lost node: without its kubelet once its ranks must have stopped.

    That is in so many seconds. Before, its kubelet is asked: where it lives, the end of the pod is proof.
    """
    if unfenced <= 0:
        return delete_pod(one.name, one.uid, grace_seconds=0)
    return None if one.deleting else delete_pod(one.name, one.uid)


def _others(observed: Observed, own: Mapping[str, PodView], one: PodView) -> dict[str, NodeView]:
    """The other nodes of the incarnation, by name.

    The agents count its pods alone; one that it ran without vouches for nobody.
    """
    members = {slot.pod for slot in present(observed.job)}
    names = {other.node for other in own.values() if other.name in members and other.node}
    return {name: observed.nodes.get(name, NodeView(name)) for name in names - {one.node} if name}


def _fencing(node: NodeView, one: PodView, others: Mapping[str, NodeView]) -> Violation:
    """Why a pod of a lost node is not replaced yet."""
    reason = Reasons.FENCING
    if node.pods_replied:
        reason = Reasons.FENCING_ANSWERED
    elif nodes.may_keep_majority(node, others):
        reason = Reasons.FENCING_COMPANY
    limit = round(REPLACE_SECONDS)
    return Violation(reason, reason.format(pod=one.name, node=node.name, seconds=limit))


def _on_lost_node(observed: Observed, one: PodView, own: Mapping[str, PodView], found: PodChanges) -> None:
    """Deletes the pod without waiting for its kubelet, once nothing can come of it any more."""
    node = observed.nodes[one.node or ""]
    left = unfenced_seconds(observed, own, one)
    if left > 0:
        found.waits.append(min(left, 1.0))
        found.fencing = found.fencing or _fencing(node, one, _others(observed, own, one))
    if (gone := off_lost_node(one, left)) is not None:
        found.delete.append(gone)
