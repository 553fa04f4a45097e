"""Decides which pods a job must create and delete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from convoy_controllers.children import Delete, delete_pod
from convoy_controllers.liveness.fence import REPLACE_SECONDS
from convoy_controllers.trainingjob import gang, nodes, offenders, spot
from convoy_controllers.trainingjob.independent.scope import is_independent
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.pods import pod
from convoy_controllers.trainingjob.role_limits import RoleLimits
from convoy_controllers.views import NodeView, PodView
from convoy_controllers.workers.pod import pod_incarnation, with_incarnation
from convoy_controllers.workers.pod_ends import ended, failed
from convoy_controllers.workers.violation import Violation
from convoy_crds.layout import Slot, present
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import ANNOTATION_INTENT
from convoy_crds.trainingjob_status import RestartScope, TrainingJobStatus

STRANDED_SECONDS = 30.0
"""Seconds for which a node's agent must be silent before a pod on the node is stranded. A pod can be
stranded only before its incarnation has formed. A stranded pod is recreated elsewhere.
"""
MISPLACED_SECONDS = 2.0
"""Age in seconds at which a pod is replaced if the scheduler placed it on a node that was already lost."""
RETRY_SECONDS = 60.0
"""Age in seconds at which an ended pod is recreated if the incarnation runs without the pod."""


@dataclass(slots=True)
class PodChanges:
    """The pods to create and to delete."""

    create: list[dict[str, Any]] = field(default_factory=list)
    delete: list[Delete] = field(default_factory=list)
    fencing: Violation | None = None
    """The reason why a pod on a lost node is not replaced yet; None if the replacement of no pod has to
    wait.
    """
    check: list[dict[str, Any]] = field(default_factory=list)
    """Pods that the API server checks without creating them."""
    held: Violation | None = None
    """The reason why missing pods are not created yet; None if nothing holds them back."""
    waits: list[float] = field(default_factory=list)
    """Seconds until each of the postponed changes is due."""


def pod_changes(
    observed: Observed,
    status: TrainingJobStatus,
    layout: tuple[Slot, ...],
    own: Mapping[str, PodView],
    lost: Mapping[str, str],
    now: datetime,
) -> PodChanges:
    """Return the pods to delete; the caller adds the pods to create.

    A pod is deleted if it has ended, is not in the layout, or is on a lost node. A pod without running
    ranks is also deleted if it differs from the spec, or if the scope of the last restart includes it.
    """
    found = PodChanges()
    by_pod = {slot.pod: slot for slot in layout}
    running = _running(observed, status)
    given_up = {(one.role, one.replica) for one in observed.yielded}
    for one in own.values():
        if one.node in lost:
            if late := _misplaced_wait(one, one.name in running, status, now):
                found.waits.append(late)
            else:
                _on_lost_node(observed, one, own, found)
        elif one.deleting:
            # While its agent is away, the kubelet cannot unmount the CSI volume and never removes the pod. A
            # pod that has ended is then deleted by force.
            over = ended(one) and stranded(observed, one, status)
            found.delete += [delete_pod(one.name, one.uid, grace_seconds=0)] if over else []
        elif one.name in by_pod and (by_pod[one.name].role, by_pod[one.name].replica) in given_up:
            found.delete.append(delete_pod(one.name, one.uid))
        elif one.name in running:
            # A pod that exited with code 0 still belongs to the incarnation, so only a failed pod is deleted.
            found.delete += [delete_pod(one.name, one.uid)] if failed(one) else []
        elif running and one.name in by_pod and (left := _retry_wait(one, now)):
            found.waits.append(left)
        elif one.name not in by_pod or _must_go(observed, one, by_pod[one.name], status):
            found.delete.append(delete_pod(one.name, one.uid))
    leaving = {one.name for one in found.delete}
    staying = {name: one for name, one in own.items() if name not in leaving}
    found.delete += spot.misplaced(spot.grants(observed), layout, staying)
    _delete_leftovers(observed, lost, found)
    return found


def missing(
    observed: Observed,
    status: TrainingJobStatus,
    layout: tuple[Slot, ...],
    lost: Mapping[str, str],
    changes: PodChanges,
) -> list[dict[str, Any]]:
    """Return the pods that the layout lacks after the deletions of `changes`, as far as the limits of roles
    allow. If one of these cannot be created, set `changes.held` and return none.
    """
    # A forced deletion frees the pod's name at once. The pod is recreated in this plan, because a later plan
    # would no longer know the lost node to avoid.
    freed = {deletion.name for deletion in changes.delete if deletion.grace_seconds == 0}
    names = {one.name for one in observed.pods} - freed
    avoid = avoided(observed, status, lost)
    leaving = {deletion.name for deletion in changes.delete}
    staying = {one.name: one for one in observed.pods if one.name not in leaving}
    rooms = RoleLimits(observed, layout, staying)
    group = gang.group(observed, status)
    found = []
    given_up = {(one.role, one.replica) for one in observed.yielded}
    for slot in layout:
        if slot.pod in names or slot.pod in observed.create_errors:
            continue
        if (slot.role, slot.replica) in given_up:
            continue
        body = rooms.place(slot, pod(observed.job, observed.engine, slot, observed.defaults, group))
        if body is not None:
            found.append(with_incarnation(body, status.incarnation, avoid))
    if rooms.held is not None:
        changes.held = rooms.held
        return []
    return found


def avoided(observed: Observed, status: TrainingJobStatus, lost: Mapping[str, str]) -> set[str]:
    """Return the nodes on which no pod should be created. A lost node may still carry the agent-ready label,
    so pods must avoid it explicitly.
    """
    return {*offenders.avoided(status.offenders, observed.job.spec.recovery), *lost}


def _running(observed: Observed, status: TrainingJobStatus) -> set[str]:
    """Return the names of the pods in the incarnation that has formed."""
    if not status.formed:
        return set()
    return {slot.pod for slot in present(observed.job.model_copy(update={"status": status}))}


def _delete_leftovers(observed: Observed, lost: Mapping[str, str], found: PodChanges) -> None:
    """Delete pods on lost nodes that belong to an earlier job of the same name, which was deleted.
    Otherwise their names would stay in use.

    The fencing of the earlier job is no longer known, so Strict is assumed.
    """
    for one in observed.pods:
        ours = one.owner_uid == observed.job.metadata.uid or ANNOTATION_INTENT not in one.annotations
        if ours or not one.deleting or one.node not in lost:
            continue
        left = 0.0 if ended(one) else nodes.unfenced_seconds(observed.nodes[one.node or ""], {})
        if left > 0:
            found.waits.append(min(left, 1.0))
        if (deletion := delete_from_lost_node(one, left)) is not None:
            found.delete.append(deletion)


def _misplaced_wait(one: PodView, running: bool, status: TrainingJobStatus, now: datetime) -> float:
    """Return the seconds to wait before a pod on a lost node is replaced, if the pod was placed there after
    the loss.

    Return 0 if the pod was created for an earlier incarnation, or if it is `running`. Without the wait, new
    pods might be placed on the lost node again and again until it loses its agent-ready label.
    """
    if running or pod_incarnation(one) < status.incarnation:
        return 0.0
    return _until_age(one, MISPLACED_SECONDS, now)


def _retry_wait(one: PodView, now: datetime) -> float:
    """Return the seconds until an ended pod is recreated, if the incarnation runs without it; 0 if the pod
    has not ended.
    """
    return _until_age(one, RETRY_SECONDS, now) if ended(one) else 0.0


def _until_age(one: PodView, seconds: float, now: datetime) -> float:
    """Return the seconds until the pod is `seconds` old. The result is at most `seconds`, even if the
    clocks of the operator and the API server differ.
    """
    return min(max(0.0, one.created + seconds - now.timestamp()), seconds)


def stranded(observed: Observed, one: PodView, status: TrainingJobStatus) -> bool:
    """Return True if the agent on the pod's node has been silent for STRANDED_SECONDS and the incarnation
    has not formed.
    """
    node = observed.nodes.get(one.node or "")
    if status.formed or node is None or node.agent_ready:
        return False
    return node.silent_seconds >= STRANDED_SECONDS


def _must_go(observed: Observed, one: PodView, slot: Slot, status: TrainingJobStatus) -> bool:
    """Return True if a pod outside a formed incarnation must be deleted.

    The pod must be deleted if it has ended, is stranded or differs from the spec. It must also be deleted
    if the scope of the last restart includes it.
    """
    if ended(one) or stranded(observed, one, status):
        return True
    if not status.formed and _replaced_by_restart(one, status):
        return True
    group = gang.group(observed, status)
    wanted = pod(observed.job, observed.engine, slot, observed.defaults, group)
    return bool(
        one.annotations.get(ANNOTATION_INTENT) != wanted["metadata"]["annotations"][ANNOTATION_INTENT]
    )


def _replaced_by_restart(one: PodView, status: TrainingJobStatus) -> bool:
    """Return True if the pod existed before the last restart and the scope of that restart includes it."""
    last = status.restarts.last
    if last is None or last.scope is RestartScope.PROCESS:
        return False
    if last.scope is RestartScope.POD and last.pod != one.name:
        return False
    return pod_incarnation(one) < status.incarnation


def unfenced_seconds(observed: Observed, own: Mapping[str, PodView], one: PodView) -> float:
    """Return the seconds until the ranks of a pod on a lost node must have stopped under Strict fencing.
    Return 0 if they must have stopped already, or if fencing is not Strict. An Independent pod needs no
    fencing.
    """
    if ended(one) or not nodes.strict(observed.job) or is_independent(observed.job, one):
        return 0.0
    return nodes.unfenced_seconds(observed.nodes[one.node or ""], _others(observed, own, one))


def delete_from_lost_node(one: PodView, unfenced: float) -> Delete | None:
    """Return the deletion of a pod on a lost node. `unfenced` are the seconds until the pod's ranks must
    have stopped.

    At 0 seconds the pod is deleted by force, without its kubelet. Before that, the kubelet is asked to
    delete the pod. If the kubelet is alive and removes the pod, the ranks have stopped. Return None if the
    kubelet has already been asked.
    """
    if unfenced <= 0:
        return delete_pod(one.name, one.uid, grace_seconds=0)
    return None if one.deleting else delete_pod(one.name, one.uid)


def _others(observed: Observed, own: Mapping[str, PodView], one: PodView) -> dict[str, NodeView]:
    """Return the incarnation's nodes except the node of `one`, by name.

    Only members of the incarnation count, because agents ask only members for attestation.
    """
    members = {slot.pod for slot in present(observed.job)}
    names = {other.node for other in own.values() if other.name in members and other.node}
    return {name: observed.nodes.get(name, NodeView(name)) for name in names - {one.node} if name}


def _fencing(node: NodeView, one: PodView, others: Mapping[str, NodeView]) -> Violation:
    """Return the reason and message why a pod of a lost node is not replaced yet."""
    reason = Reasons.FENCING
    if node.pods_replied:
        reason = Reasons.FENCING_ANSWERED
    elif nodes.may_keep_majority(node, others):
        reason = Reasons.FENCING_COMPANY
    limit = round(REPLACE_SECONDS)
    return Violation(reason, reason.format(pod=one.name, node=node.name, seconds=limit))


def _on_lost_node(observed: Observed, one: PodView, own: Mapping[str, PodView], found: PodChanges) -> None:
    """Delete a pod on a lost node by force once its ranks must have stopped. Until then, ask its kubelet to
    delete it, and record how long and why the replacement must wait.
    """
    node = observed.nodes[one.node or ""]
    left = unfenced_seconds(observed, own, one)
    if left > 0:
        found.waits.append(min(left, 1.0))
        found.fencing = found.fencing or _fencing(node, one, _others(observed, own, one))
    if (deletion := delete_from_lost_node(one, left)) is not None:
        found.delete.append(deletion)
