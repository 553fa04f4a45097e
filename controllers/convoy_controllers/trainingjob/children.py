"""Which pods a job needs made, and which have to go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from convoy_controllers.plan import DeletePod, NodeView, PodView
from convoy_controllers.trainingjob import nodes, offenders
from convoy_controllers.trainingjob.faults import ended, failed
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.pods import born, pod
from convoy_controllers.trainingjob.validity import Violation
from convoy_crds.layout import Slot, present
from convoy_crds.terms import ANNOTATION_BORN, ANNOTATION_INTENT, Reasons
from convoy_crds.trainingjob import Scope, TrainingJobStatus

LABEL_SECONDS = 0.2
"""Until a node's agent-ready label is looked at again; it is on its way off a lost node."""


@dataclass(slots=True)
class Children:
    """What is to be done about the pods."""

    create: list[dict[str, Any]] = field(default_factory=list)
    delete: list[DeletePod] = field(default_factory=list)
    fencing: Violation | None = None
    """Why a pod of a lost node is not replaced yet."""
    waits: list[float] = field(default_factory=list)
    """Seconds until one of the pods could be dealt with."""


def children(
    observed: Observed,
    status: TrainingJobStatus,
    layout: tuple[Slot, ...],
    own: Mapping[str, PodView],
    lost: Mapping[str, str],
) -> Children:
    """Pods to make; and pods to delete: ended, superfluous, on lost nodes, condemned by the last restart,
    or, where none of their ranks run, not as the spec now asks."""
    found = Children()
    by_pod = {slot.pod: slot for slot in layout}
    running = _running(observed, status)
    for one in own.values():
        if one.node in lost:
            _on_lost_node(observed, one, own, found)
        elif one.deleting:
            continue
        elif one.name in running:
            # One that ended well still stands for its ranks.
            found.delete += [DeletePod(one.name, one.uid)] if failed(one) else []
        elif one.name not in by_pod or _must_go(observed, one, by_pod[one.name], status):
            found.delete.append(DeletePod(one.name, one.uid))
    if any(observed.nodes[name].agent_ready and observed.nodes[name].exists for name in lost):
        # What is made now might be placed there again.
        found.waits.append(LABEL_SECONDS)
        return found
    names = {one.name for one in observed.pods}
    avoid = offenders.avoided(status.offenders, observed.job.spec.recovery)
    found.create = [
        born(pod(observed.job, observed.engine, slot), status.incarnation, avoid)
        for slot in layout
        if slot.pod not in names and slot.pod not in observed.create_errors
    ]
    return found


def _running(observed: Observed, status: TrainingJobStatus) -> set[str]:
    """Pods of the incarnation that has formed."""
    if not status.membership:
        return set()
    return {slot.pod for slot in present(observed.job.model_copy(update={"status": status}))}


def _must_go(observed: Observed, one: PodView, slot: Slot, status: TrainingJobStatus) -> bool:
    """Whether a pod of no formed incarnation has ended, is condemned, or is not as the spec asks."""
    if ended(one) or (not status.membership and _condemned(one, status)):
        return True
    wanted = pod(observed.job, observed.engine, slot)["metadata"]["annotations"][ANNOTATION_INTENT]
    return bool(one.annotations.get(ANNOTATION_INTENT) != wanted)


def _condemned(one: PodView, status: TrainingJobStatus) -> bool:
    """Whether the restart that reserved this incarnation replaces the pod."""
    last = status.restarts.last
    if last is None or last.scope is Scope.PROCESS:
        return False
    if last.scope is Scope.POD and last.pod != one.name:
        return False
    return int(one.annotations.get(ANNOTATION_BORN) or 0) < status.incarnation


def unfenced_seconds(observed: Observed, own: Mapping[str, PodView], one: PodView) -> float:
    """Seconds until a pod on a lost node can no longer run ranks under Strict fencing; 0 when it cannot."""
    if ended(one) or not nodes.strict(observed.job):
        return 0.0
    # The agents count the incarnation's pods alone; one that it ran without vouches for nobody.
    members = {slot.pod for slot in present(observed.job)}
    names = {other.node for other in own.values() if other.name in members and other.node}
    others = {name: observed.nodes.get(name, NodeView(name)) for name in names - {one.node} if name}
    return nodes.unfenced_seconds(observed.nodes[one.node or ""], others)


def _on_lost_node(observed: Observed, one: PodView, own: Mapping[str, PodView], found: Children) -> None:
    """Deletes the pod without waiting for its kubelet, once nothing can come of it any more."""
    node = observed.nodes[one.node or ""]
    left = unfenced_seconds(observed, own, one)
    if left > 0:
        found.waits.append(min(left, 1.0))
        reason = Reasons.FENCING
        message = reason.format(pod=one.name, node=node.name, seconds=round(left))
        found.fencing = found.fencing or Violation(reason, message)
    elif not (node.exists and node.agent_ready):
        found.delete.append(DeletePod(one.name, one.uid, grace_seconds=0))
