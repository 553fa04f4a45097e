"""Why a job's pods are not up yet, in the order a person would ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from convoy_controllers.plan import PodView, SlotView
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.validity import Violation
from convoy_crds.layout import Slot
from convoy_crds.terms import Reason, Reasons

PULL_FAILURES = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
CONFIG_FAILURES = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})


def _say(reason: Reason, **facts: object) -> Violation:
    return Violation(reason, reason.format(**facts))


def refused(observed: Observed, layout: Sequence[Slot]) -> Violation | None:
    """A pod that the API server would not create."""
    own_uid = observed.job.metadata.uid
    taken = {pod.name for pod in observed.pods if pod.owner_uid != own_uid and not pod.deleting}
    for slot in layout:
        if slot.pod in taken:
            return _say(Reasons.POD_CONFLICT, pod=slot.pod)
        if refusal := observed.create_errors.get(slot.pod):
            return _say(Reasons.POD_REJECTED, pod=slot.pod, why=refusal.message, role=slot.role)
    return None


def broken(pods: Sequence[PodView]) -> Violation | None:
    """A placed pod whose container cannot start yet."""
    for pod in pods:
        if pod.waiting_reason in PULL_FAILURES:
            # The kubelet says the cause in two alternating phrases; every change would be a write.
            why = (pod.waiting_message or pod.waiting_reason).rsplit("ErrImagePull: ", 1)[-1]
            return _say(Reasons.IMAGE_PULL, pod=pod.name, node=pod.node, image=pod.image, why=why)
        if pod.waiting_reason in CONFIG_FAILURES:
            why = pod.waiting_message or pod.waiting_reason
            return _say(Reasons.CONTAINER_CONFIG, pod=pod.name, node=pod.node, why=why)
    return None


def unplaced(observed: Observed, pods: Sequence[PodView]) -> Violation | None:
    """A pod for which the scheduler finds no node."""
    stuck = next((pod for pod in pods if pod.unschedulable and not pod.node), None)
    if stuck is None:
        return None
    if observed.agent_nodes == 0:
        return _say(Reasons.WAITING_FOR_AGENT)
    # What follows the first sentence speaks of preemption, which is no help here.
    why = stuck.unschedulable.split(". ")[0].rstrip(".")
    return _say(Reasons.UNSCHEDULABLE, pod=stuck.name, why=why, advice=_advice(why.lower()))


def _advice(why: str) -> str:
    if "unbound" in why and "persistentvolumeclaim" in why:
        return "no volume fits its claim: kubectl describe pvc says why"
    if "persistentvolumeclaim" in why:
        return "create the claim, or correct its name"
    return "lower its requests or add nodes"


def why(
    observed: Observed, layout: Sequence[Slot], pods: Mapping[str, PodView], views: Mapping[str, SlotView]
) -> Violation:
    """The one reason to show while the job is not whole."""
    present = [pods[slot.pod] for slot in layout if slot.pod in pods]
    if found := refused(observed, layout) or broken(present) or unplaced(observed, present):
        return found
    placed = sum(1 for pod in present if pod.node)
    if placed < len(layout):
        return _say(Reasons.WAITING_FOR_PODS, ready=placed, desired=len(layout))
    unmet = [pod for pod in present if (view := views.get(pod.uid)) is None or not view.launcher_connected]
    first = unmet[0] if unmet else present[0]
    state = "it is being deleted" if first.deleting else first.waiting_reason or first.phase
    facts = {"pod": first.name, "node": first.node, "state": state}
    return _say(Reasons.STARTING_PODS, ready=len(present) - len(unmet), desired=len(layout), **facts)
