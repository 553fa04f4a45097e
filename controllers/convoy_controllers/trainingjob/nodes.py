"""Decides which nodes are lost, and when their workers must have stopped.

A node is lost if its agent is silent and there is a second sign: no pod on it replies to probes, or its
kubelet does not report either. A newer step of the job proves that the node lives, because a synchronous
step needs every rank.

Fencing `Strict` relies on a rule of the agents (convoy_controllers.liveness.fence). An agent stops the job
if for FENCE_SECONDS it has reached neither the hub, nor the API server, nor a majority of the job's other
agents. The operator waits until none of these three can have heard from the agent for that long, plus a
margin for stopping the ranks.
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
"""Seconds for which a step proves that every node it needed lives."""
DOUBT_SECONDS = HEARTBEAT_SECONDS + REPORT_SECONDS + 1.0
"""A step reported this soon after the last sign of an agent may be older than the silence. The sign may be
one heartbeat old, progress is batched before it is reported, and the network may add a second.
"""


def why_lost(node: NodeView, views: Iterable[SlotView]) -> str:
    """Return why a node counts as lost; empty if it does not. `views` are the pods whose steps need the
    node.
    """
    if not node.exists:
        return "its Node object was deleted"
    if not node.silent_seconds:
        return ""
    if any(_proves_alive(view, node) for view in views):
        return ""
    silence = f"its agent has been silent for {node.silent_seconds:.0f} s"
    if not node.ready:
        return f"{silence} and its kubelet does not report"
    if node.pods_reachable:
        return ""
    return f"{silence} and its pods do not reply to probes"


def _proves_alive(view: SlotView, node: NodeView) -> bool:
    """Return True if a pod on another node made a step after this node fell silent, and recently.

    An older step proves too little: a node that lived then may be dead by now.
    """
    if view.node == node.name or view.stepped <= node.silent_since + DOUBT_SECONDS:
        return False
    return node.silent_since + node.silent_seconds - view.stepped < STEP_SECONDS


def lost(observed: Observed) -> dict[str, str]:
    """Return why each lost node of the job is lost, by node name. Steps prove nothing about a node without
    a member.
    """
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
        # Ranks of another role can make steps without this node.
        if (why := why_lost(node, (view for role in needed.get(name, ()) for view in by_role.get(role, ()))))
    }


def strict(job: TrainingJob) -> bool:
    """Return True if the job's workers must be known to have stopped before they are replaced."""
    if job.spec.recovery.fencing is Fencing.AUTO:
        return job.spec.engine is None
    return job.spec.recovery.fencing is Fencing.STRICT


def may_keep_majority(node: NodeView, others: Mapping[str, NodeView]) -> bool:
    """Return True if the agent of a lost node may still reach a majority of the incarnation's `others`.

    A silent agent may attest it although the operator cannot hear either of them. Nodes that are cut off
    together thus keep each other running if they are most of the job. If most nodes of a job are really
    dead, somebody must delete their Node objects.
    """
    silent = {name for name, other in others.items() if other.exists and other.silent_seconds}
    return 2 * len((node.attested_by & set(others)) | silent) > len(others) > 0


def unfenced_seconds(node: NodeView, others: Mapping[str, NodeView]) -> float:
    """Return the seconds until Strict workers of a lost node must have stopped; 0 if they must have by now.

    `others` are the other nodes of the incarnation, whose agents may attest it.
    """
    if not node.exists:
        return 0.0
    if node.pods_replied or may_keep_majority(node, others):
        # A pod that replies still runs, and its agent may still reach those it needs to keep the job running.
        return REPLACE_SECONDS
    silence_seconds = min(node.silent_seconds, node.lease_seconds)
    return max(0.0, REPLACE_SECONDS - silence_seconds)
