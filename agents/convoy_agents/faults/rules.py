"""The rules for faults: which orders the agent refuses, and when it ends a fault early. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from convoy_agents.faults.record import ID, Order
from convoy_agents.pods.state import PodState
from convoy_crds.perturbations import PERTURBATIONS, Backend, PerturbationKind

MAX_SECONDS = 7 * 86_400.0
"""Longest time of a fault: the longest deadline of a run."""
MAX_ACTIVE = 16
"""Maximum number of faults of a node at the same time."""
_SAME_RESOURCE = frozenset({PerturbationKind.SLOW_NODE, PerturbationKind.SLOW_RANK})
"""Kinds that change the same quotas."""


def order_refusal(order: Order, running: Iterable[Order]) -> str:
    """Return the reason why an order cannot be carried out, whatever its target; empty if it can.

    `running`: the orders of the faults that are in effect.
    """
    if not ID.fullmatch(order.id):
        return "id: must be at most 100 lower-case letters, digits, hyphens and dots"
    return _kind_refusal(order) or _time_refusal(order) or _conflict(order, list(running))


def _kind_refusal(order: Order) -> str:
    found = next((one for one in PERTURBATIONS if one.kind.value == order.kind), None)
    if found is None:
        return f"kind: {order.kind!r} is not registered"
    if Backend.AGENT not in found.backends or found.kind is PerturbationKind.KILL_POD:
        return f"kind: the agent never injects {order.kind}"
    size = order.magnitude
    if not math.isfinite(size) or not found.least <= size <= found.most:
        return f"magnitude: {size:g} is not between {found.least:g} and {found.most:g} {found.unit}"
    if found.whole and size != int(size):
        return f"magnitude: {size:g} is not a whole number of {found.unit}"
    return ""


def _time_refusal(order: Order) -> str:
    if not math.isfinite(order.seconds) or not 0 < order.seconds <= MAX_SECONDS:
        return f"seconds: {order.seconds:g} is not above 0 and at most {MAX_SECONDS:g}"
    return ""


def _conflict(order: Order, running: list[Order]) -> str:
    if len(running) >= MAX_ACTIVE:
        return f"the node already has {len(running)} faults, the most that it may have"
    for other in running:
        same = other.kind == order.kind or {other.kind, order.kind} <= _SAME_RESOURCE
        if same and (
            other.pod_uid == order.pod_uid or PerturbationKind.SLOW_NODE in (other.kind, order.kind)
        ):
            return f"fault {other.id} ({other.kind}) already changes the same resource"
    return ""


def target_refusal(order: Order, pods: Mapping[str, PodState]) -> str:
    """Return the reason why the target of an order may not have a fault; empty if it may.

    The node must run only pods of the Experiment's jobs, and the pod must belong to the job of the order.
    `pods`: the states of the node's pods, by uid. The agent knows a pod's job from the hub, not from the pod.
    """
    pod = pods.get(order.pod_uid)
    if pod is None:
        return f"pod {order.pod_uid} is not on this node"
    if pod.assignment is None:
        return f"pod {order.pod_uid} has no job yet"
    if pod.assignment.owner_uid != order.owner_uid or order.owner_uid not in order.job_uids:
        return f"pod {order.pod_uid} belongs to job {pod.assignment.job}, not to the job of the order"
    for other in pods.values():
        if other.assignment is not None and other.assignment.owner_uid not in order.job_uids:
            return (
                f"pod {other.uid} of job {other.assignment.job} runs on this node too; faults need nodes "
                "that run only the Experiment's pods"
            )
    return ""
