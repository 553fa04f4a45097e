"""Explains why a job's pods are not up yet. The most useful reason comes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from convoy_controllers.plan import Inspect
from convoy_controllers.views import PodView, PodWarning, SlotView
from convoy_controllers.workers import network
from convoy_controllers.workers.pod_ends import describe_end, ended, output_end
from convoy_controllers.workers.refusal import Refusal
from convoy_controllers.workers.violation import Violation
from convoy_crds.layout import Slot
from convoy_crds.meta import ObjectMeta
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason

PULL_FAILURES = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
CONFIG_FAILURES = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "PreCreateHookError",
        "PreStartHookError",
        "PostStartHookError",
        "RunContainerError",
    }
)
LATE_SECONDS = 5.0
"""Age in seconds from which a pod that is not up counts as late. The operator then reads its Events."""
INSPECT_SECONDS = 20.0
"""Seconds between two reads of Events for the pods of a job."""
MAX_INSPECTED = 8
"""Maximum number of late pods of a job whose Events are read in turn. Most pods that do not start share one
cause.
"""
SCALER = "NotTriggerScaleUp"
"""Reason of the cluster autoscaler's Events about a pod for which it adds no node."""


class Parent(Protocol):
    """A job of any kind whose pods run under the launcher."""

    @property
    def kind(self) -> str:
        """Return the kind of the job."""
        ...

    @property
    def metadata(self) -> ObjectMeta:
        """Return the metadata of the job."""
        ...


class ObservedPods(Protocol):
    """The part of an observation that shows why pods do not start."""

    @property
    def job(self) -> Parent:
        """Return the job."""
        ...

    @property
    def pods(self) -> tuple[PodView, ...]:
        """Return the pods whose job label names the job, including pods of other owners."""
        ...

    @property
    def slots(self) -> Mapping[str, SlotView]:
        """Return the agents' reports on the pods, by pod uid."""
        ...

    @property
    def agent_nodes(self) -> int:
        """Return the number of nodes with the agent-ready label."""
        ...

    @property
    def warnings(self) -> Mapping[str, PodWarning]:
        """Return the newest Event of each pod that does not start, by pod uid."""
        ...

    @property
    def create_errors(self) -> Mapping[str, Refusal]:
        """Return the API server's reasons for refusing children at the last attempt, by name of the child."""
        ...


def _because(reason: Reason, **facts: object) -> Violation:
    return Violation(reason, reason.format(**facts))


def refused(observed: ObservedPods, layout: Sequence[Slot]) -> Violation | None:
    """Return the problem of a pod that the API server refused to create; None if there is none."""
    own_uid = observed.job.metadata.uid
    for name in network.names(observed.job.kind, observed.job.metadata.name):
        if refusal := observed.create_errors.get(name):
            why = f"the API server refused NetworkPolicy {name}: {refusal.message}"
            return Violation(Reasons.POD_REJECTED, f"{why}; ask who owns that webhook, policy or object")
    taken = {pod.name for pod in observed.pods if pod.owner_uid != own_uid and not pod.deleting}
    for slot in layout:
        if slot.pod in taken:
            return _because(Reasons.POD_CONFLICT, pod=slot.pod)
        if refusal := observed.create_errors.get(slot.pod):
            advice = _refusal_advice(refusal.message.lower(), slot.role)
            return _because(Reasons.POD_REJECTED, pod=slot.pod, why=refusal.message, advice=advice)
    return None


def _refusal_advice(why: str, role: str) -> str:
    """Return advice about a refusal that does not blame a field of the pod."""
    if "is not this job's" in why:
        return f"a pod's name begins with the names of job and role, so another name than {role!r} also helps"
    if "exceeded quota" in why or "failed quota" in why:
        return "free resources in the namespace, have its ResourceQuota raised, or request less"
    if "usage per" in why or "limit to request ratio" in why:
        return f"request what the namespace's LimitRange allows in spec.roles[{role}].template"
    if "priorityclass" in why or "runtimeclass" in why or "service account" in why or "serviceaccount" in why:
        return f"create the missing object, or correct its name in spec.roles[{role}].template"
    if "failed calling webhook" in why:
        return "check the pods of that webhook, or ask its owner; Convoy tries again"
    if "admission webhook" in why or "policy" in why:
        return f"correct spec.roles[{role}].template, or ask the owner of that webhook or policy"
    return f"correct spec.roles[{role}].template"


def broken(pods: Sequence[PodView]) -> Violation | None:
    """Return the problem of a placed pod with a container that cannot start; None if there is none."""
    for pod in pods:
        facts = {"pod": pod.name, "node": pod.node}
        container = pod.waiting_container or pod.container
        if pod.waiting_reason in PULL_FAILURES:
            # For one cause, the kubelet alternates between two texts. Only their common end is kept.
            # Otherwise each alternation would be a write of the status.
            why = (pod.waiting_message or pod.waiting_reason).rsplit("ErrImagePull: ", 1)[-1]
            return _because(Reasons.IMAGE_PULL, image=pod.image, why=why, **facts)
        if pod.waiting_reason in CONFIG_FAILURES:
            why = pod.waiting_message or pod.waiting_reason
            return _because(Reasons.CONTAINER_CONFIG, container=container, why=why, **facts)
        if pod.failure and not ended(pod):
            words = output_end(pod.failure.message)
            return _because(
                Reasons.CONTAINER_FAILING,
                container=container,
                how=describe_end(pod.failure),
                words=words,
                **facts,
            )
    return None


def unplaced(observed: ObservedPods, pods: Sequence[PodView]) -> Violation | None:
    """Return the problem of a pod for which the scheduler finds no node; None if there is none."""
    stuck = next((pod for pod in pods if pod.unschedulable and not pod.node), None)
    if stuck is None:
        return None
    if observed.agent_nodes == 0:
        return _because(Reasons.WAITING_FOR_AGENT)
    # Only the first sentence of the scheduler's message is kept. The others are about preemption, which does
    # not help here.
    why = stuck.unschedulable.split(". ")[0].rstrip(".")
    advice = _advice(why.lower())
    event = observed.warnings.get(stuck.uid)
    if event and event.reason == SCALER:
        advice += f". The cluster autoscaler adds no node: {event.message}"
    return _because(Reasons.UNSCHEDULABLE, pod=stuck.name, why=why, advice=advice)


def _advice(why: str) -> str:
    if "scheduling gate" in why:
        return "check the controller that sets this scheduling gate"
    if "unbound" in why and "persistentvolumeclaim" in why:
        return "no volume fits its claim, see kubectl describe pvc"
    if "persistentvolumeclaim" in why:
        return "create the PersistentVolumeClaim, or correct its name"
    if "volume node affinity" in why:
        return "the nodes that can use its volume are full or excluded by its template"
    return "lower its requests or add nodes"


def warned(
    observed: ObservedPods, pods: Sequence[PodView], views: Mapping[str, SlotView]
) -> Violation | None:
    """Return the problem of a placed pod whose Events explain more than its status; None if there is none."""
    for pod in pods:
        event = observed.warnings.get(pod.uid)
        if event and pod.node and not pod.deleting and not _up(pod, views):
            facts = {"pod": pod.name, "node": pod.node, "event": event.reason, "why": event.message}
            return _because(Reasons.POD_NOT_STARTING, **facts)
    return None


def why(
    observed: ObservedPods, layout: Sequence[Slot], pods: Mapping[str, PodView], views: Mapping[str, SlotView]
) -> Violation:
    """Return the one reason to show while not all pods of the job are up."""
    present = [pods[slot.pod] for slot in layout if slot.pod in pods]
    found = (
        refused(observed, layout)
        or broken(present)
        or unplaced(observed, present)
        or warned(observed, present, views)
    )
    if found:
        return found
    placed = sum(1 for pod in present if pod.node)
    if placed < len(layout):
        others = next((pod for pod in present if not pod.node and pod.scheduler), None)
        more = f"; pod {others.name} waits for scheduler {others.scheduler!r}" if others else ""
        if leaving := _leaving(observed, layout):
            more = f"; another owner's pod named {leaving} is still being deleted"
        return _because(Reasons.WAITING_FOR_PODS, ready=placed, desired=len(layout), more=more)
    unmet = [pod for pod in present if not _up(pod, views)]
    first = unmet[0] if unmet else present[0]
    facts = {"pod": first.name, "node": first.node, "state": _state(first)}
    return _because(Reasons.STARTING_PODS, ready=len(present) - len(unmet), desired=len(layout), **facts)


def _leaving(observed: ObservedPods, layout: Sequence[Slot]) -> str:
    """Return the name of a pod that this job needs but cannot create yet; empty if there is none. Another
    owner's pod of that name is still being deleted.

    The other owner is typically a deleted job of the same name.
    """
    own_uid = observed.job.metadata.uid
    leaving = {pod.name for pod in observed.pods if pod.owner_uid != own_uid and pod.deleting}
    return next((slot.pod for slot in layout if slot.pod in leaving), "")


def _up(pod: PodView, views: Mapping[str, SlotView]) -> bool:
    """Return True if a pod's launcher is connected to its agent."""
    view = views.get(pod.uid)
    return view is not None and view.launcher_connected


def _state(pod: PodView) -> str:
    if pod.deleting:
        return "it is being deleted"
    if pod.waiting_reason and pod.waiting_container not in ("", pod.container):
        return f"container {pod.waiting_container}: {pod.waiting_reason}"
    return pod.waiting_reason or pod.phase


def retried(found: Violation, cause: str) -> Violation:
    """Return the reason to show during another attempt to schedule the pods.

    If `found` is no problem, the message also contains `cause`, the problem of the last attempt.
    """
    if found.reason.warning or not cause:
        return found
    return _because(Reasons.SCHEDULE_RETRY, now=found.message, why=cause)


def inspect(
    observed: ObservedPods, layout: Sequence[Slot], pods: Mapping[str, PodView], now: datetime
) -> tuple[Inspect | None, float | None]:
    """Return the late pod whose Events must be read now, and the seconds until the next read.

    Pods that are up are skipped. So are pods whose status already explains the delay.
    """
    present = (pods[slot.pod] for slot in layout if slot.pod in pods)
    stuck = [pod for pod in present if not (pod.deleting or ended(pod) or _up(pod, observed.slots))]
    candidates = [pod for pod in stuck if broken([pod]) is None]
    if not candidates:
        return None, None
    # Events of placed pods tell more than Events of pods without a node, for which the scheduler's message is
    # known. Placed pods therefore come first.
    placed = [pod for pod in candidates if pod.node] or candidates
    turn = placed[:MAX_INSPECTED][int(now.timestamp() // INSPECT_SECONDS) % min(len(placed), MAX_INSPECTED)]
    young = min(max(0.0, turn.created + LATE_SECONDS - now.timestamp()), LATE_SECONDS)
    if young:
        return None, young
    return Inspect(turn.name, turn.uid), INSPECT_SECONDS
