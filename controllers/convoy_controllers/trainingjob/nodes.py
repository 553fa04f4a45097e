"""Which nodes are lost, and when their workers must have stopped.

A node is lost when its agent is silent and a second witness agrees: no pod on it answers, or its kubelet has
stopped reporting as well. A step that the job made since then is the proof of the contrary: a synchronous
step needs every rank.

Fencing `Strict` rests on the agents' rule (convoy_controllers.liveness.fence): an agent that for
FENCE_SECONDS has reached neither the hub, nor the API server, nor a majority of the job's other agents stops
the job. The operator waits until none of the three can have heard of it for that long, and a margin for the
stopping.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from convoy_controllers.liveness.fence import REPLACE_SECONDS
from convoy_controllers.liveness.timings import HEARTBEAT_SECONDS, REPORT_SECONDS
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.views import NodeView, SlotView
from convoy_crds.layout import present
from convoy_crds.trainingjob import Fencing, TrainingJob

STEP_SECONDS = 5.0
"""For which a step is proof that every node it needed lives."""
DOUBT_SECONDS = HEARTBEAT_SECONDS + REPORT_SECONDS + 1.0
"""A step reported so soon after the last sign of an agent may be older than its silence: the sign may be a
heartbeat old, progress is gathered before it is reported, and networks may take a second."""


def why_lost(node: NodeView, views: Iterable[SlotView]) -> str:
    """Why a node is to be taken for lost; empty when it is not. `views`: of the pods whose steps need it."""
    if not node.exists:
        return "its Node object is gone"
    if not node.silent_seconds:
        return ""
    if any(_proves_alive(view, node) for view in views):
        return ""
    silence = f"its agent has been silent for {node.silent_seconds:.0f} s"
    if not node.ready:
        return f"{silence} and its kubelet does not report"
    if node.pods_reachable:
        return ""
    return f"{silence} and its pods do not answer"


def _proves_alive(view: SlotView, node: NodeView) -> bool:
    """Whether a pod elsewhere has made a step since the node fell silent, and a moment ago: a node that was
    alive then may be dead by now."""
    if view.node == node.name or view.stepped <= node.silent_since + DOUBT_SECONDS:
        return False
    return node.silent_since + node.silent_seconds - view.stepped < STEP_SECONDS


def lost(observed: Observed) -> dict[str, str]:
    """By name of each lost node of the job, why. Steps say nothing of a node that no member is on."""
    job = observed.job
    roles = {slot.pod: slot.role for slot in present(job)} if job.status.membership else {}
    members = [pod for pod in observed.pods if pod.owner_uid == job.metadata.uid and pod.name in roles]
    by_role: dict[str, list[SlotView]] = {}
    needed: dict[str, set[str]] = {}
    for pod in members:
        if (view := observed.slots.get(pod.uid)) is not None:
            by_role.setdefault(roles[pod.name], []).append(view)
        needed.setdefault(pod.node or "", set()).add(roles[pod.name])
    return {
        name: why
        for name, node in observed.nodes.items()
        # Ranks of another role may step on without this one's.
        if (why := why_lost(node, (view for role in needed.get(name, ()) for view in by_role.get(role, ()))))
    }


def strict(job: TrainingJob) -> bool:
    """Whether the job's workers must be known to have stopped before they are replaced."""
    if job.spec.recovery.fencing is Fencing.AUTO:
        return job.spec.engine is None
    return job.spec.recovery.fencing is Fencing.STRICT


def may_keep_majority(node: NodeView, others: Mapping[str, NodeView]) -> bool:
    """Whether the agent of a lost node may still have a majority of the incarnation's `others`.

    A silent one may vouch for it where the operator cannot hear it: nodes that are cut off together keep one
    another going while they are most of the job. Where most of a job's nodes die, its owner has to delete
    their Node objects.
    """
    silent = {name for name, other in others.items() if other.exists and other.silent_seconds}
    return 2 * len((node.attested_by & set(others)) | silent) > len(others) > 0


def unfenced_seconds(node: NodeView, others: Mapping[str, NodeView]) -> float:
    """Seconds until Strict workers of a lost node must have stopped; 0 when they must have.

    `others`: the other nodes of the incarnation, whose agents may vouch for it.
    """
    if not node.exists:
        return 0.0
    if node.pods_replied or may_keep_majority(node, others):
        # Whoever answers runs; its agent may still reach whom it needs to go on.
        return REPLACE_SECONDS
    silence_seconds = min(node.silent_seconds, node.lease_seconds)
    return max(0.0, REPLACE_SECONDS - silence_seconds)
