"""Decides which nodes are lost, and when their workers must have stopped.

A node is lost if its agent is silent and one of two things confirms the loss: no pod on the node replies to
probes, or the kubelet does not report either. A newer step of the job proves that the node is alive,
because a synchronous step needs every rank.

Fencing `Strict` relies on a rule of the agents (convoy_controllers.liveness.fence). An agent stops the
job's ranks if for FENCE_SECONDS it has reached neither the hub, nor the API server, nor a majority of the
job's other agents. The operator therefore waits until none of these three can have had contact with the
agent for FENCE_SECONDS. It adds a margin for stopping the ranks.
"""

from __future__ import annotations

from collections.abc import Mapping

from convoy_controllers.liveness.fence import REPLACE_SECONDS
from convoy_controllers.liveness.lost_nodes import why_lost
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.views import NodeView, SlotView
from convoy_crds.layout import present
from convoy_crds.trainingjob import Fencing, TrainingJob


def lost(observed: Observed) -> dict[str, str]:
    """Return the reason why each lost node of the job is lost, by name of the node.

    A step can prove that a node is alive only if a pod of the incarnation runs on the node.
    """
    job = observed.job
    roles = {slot.pod: slot.role for slot in present(job)} if job.status.formed else {}
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
        # A role can make steps without the nodes of other roles. Only steps of roles that have a pod on the
        # node can prove that it is alive.
        if (why := why_lost(node, (view for role in needed.get(name, ()) for view in by_role.get(role, ()))))
    }


def strict(job: TrainingJob) -> bool:
    """Return True if the job's workers must be known to have stopped before they are replaced."""
    if job.spec.recovery.fencing is Fencing.AUTO:
        return job.spec.engine is None
    return job.spec.recovery.fencing is Fencing.STRICT


def may_keep_majority(node: NodeView, others: Mapping[str, NodeView]) -> bool:
    """Return True if the agent of a lost node may still reach a majority of `others`, the incarnation's
    other nodes.

    The network may cut off several nodes together. Their agents are silent, but can still attest each
    other. If these nodes are a majority of the job, their ranks keep running. If a majority of the nodes is
    really dead, an administrator must delete their Node objects.
    """
    silent = {name for name, other in others.items() if other.exists and other.silent_seconds}
    return 2 * len((node.attested_by & set(others)) | silent) > len(others) > 0


def unfenced_seconds(node: NodeView, others: Mapping[str, NodeView]) -> float:
    """Return the seconds until Strict workers of a lost node must have stopped; 0 if they must have stopped
    already.

    `others` are the other nodes of the incarnation. Their agents may attest this node's agent.
    """
    if not node.exists:
        return 0.0
    if node.pods_replied or may_keep_majority(node, others):
        # The ranks may still run, because a pod on the node replied or the node's agent may reach a majority.
        # The full waiting time therefore remains.
        return REPLACE_SECONDS
    silence_seconds = min(node.silent_seconds, node.lease_seconds)
    return max(0.0, REPLACE_SECONDS - silence_seconds)
