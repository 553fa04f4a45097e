"""The guard's decision about all hardware of a policy: which statuses to store, which jobs to swap, and
which nodes to sweep.

The order of writes is part of the decision. The policy's status (the breaker) is stored first, then the
nodes' statuses in any order. Actions follow only from stored statuses. So if an operator dies between two
writes, its successor still counts every granted request.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from convoy_controllers.nodehealth import machine, routine
from convoy_controllers.nodehealth.breaker import AssessedNode
from convoy_controllers.nodehealth.budget import Allocation, Refusal, allocate
from convoy_controllers.nodehealth.conditions import with_conditions
from convoy_controllers.nodehealth.machine import Request
from convoy_controllers.nodehealth.observed import Fleet, Member
from convoy_crds.guardpolicy import BreakerState, GuardPolicy, GuardPolicyStatus, Mode
from convoy_crds.nodehealth import NodeHealthStatus, State

RECONCILE_SECONDS = 15.0
"""Seconds between two reconciles without an event. The guard's timeouts are minutes long, so a shorter
interval is not needed.
"""


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """The guard's decision about all hardware of a policy in one reconcile."""

    policy: GuardPolicyStatus | None = None
    """The policy's new status, which must be stored before any other status; None if it is unchanged."""
    statuses: dict[str, NodeHealthStatus] = field(default_factory=dict)
    """Changed statuses, by NodeHealth."""
    refused: dict[str, Refusal] = field(default_factory=dict)


def decide(fleet: Fleet, now: datetime) -> FleetPlan:
    """Return the guard's decision about all nodes of a policy."""
    policy, members = fleet.policy, {member.name: member for member in fleet.members}
    nodes = {
        name: AssessedNode(machine.next_status(member, policy, now), member.facts, member.health.status)
        for name, member in members.items()
    }
    allocation = _allocated(policy, nodes, now)
    statuses: dict[str, NodeHealthStatus] = {}
    for name, one in nodes.items():
        status = one.status
        if (granted := allocation.granted.get(name)) is not None:
            status = machine.granted(status, one.facts, name, granted, now)
        generation = members[name].health.metadata.generation
        refusal = allocation.refused.get(name)
        status = with_conditions(status, one.facts, policy, refusal, generation, now)
        if status is not members[name].health.status and status != members[name].health.status:
            statuses[name] = status
    final = [statuses.get(name, one.status) for name, one in nodes.items()]
    counted = _counted(policy, allocation, final)
    same = counted == policy.status
    return FleetPlan(None if same else counted, statuses, allocation.refused)


def unguarded(member: Member, now: datetime) -> NodeHealthStatus | None:
    """Return the new status of hardware without a policy; None if the status is unchanged."""
    status = machine.next_status(member, None, now)
    status = with_conditions(status, member.facts, None, None, member.health.metadata.generation, now)
    return status if status != member.health.status else None


def must_swap(status: NodeHealthStatus, policy: GuardPolicy | None) -> bool:
    """Return True if the stored status requires a swap of the node's jobs now: the node is drained, or is to
    be tested as a suspect. An open breaker pauses swaps.
    """
    tested = status.sweep is not None and status.sweep.swaps
    if policy is None or policy.spec.mode is Mode.OBSERVE or not (tested or status.state is State.DRAINING):
        return False
    return policy.status.breaker.state is not BreakerState.OPEN


def _allocated(policy: GuardPolicy, nodes: dict[str, AssessedNode], now: datetime) -> Allocation:
    requests: dict[str, tuple[Request, ...]] = {}
    for name, one in nodes.items():
        if several := machine.requests(one.status, one.facts, policy, now):
            requests[name] = several
    if policy.spec.mode is Mode.OBSERVE:
        # Grant nothing. The refusals say what would block the requests in mode Act.
        wanted = allocate(policy, nodes, requests, now)
        return Allocation(policy.status.breaker, refused=wanted.refused)
    for name, request in routine.requests(policy, nodes, now).items():
        requests.setdefault(name, (request,))
    return allocate(policy, nodes, requests, now)


def _counted(policy: GuardPolicy, allocation: Allocation, final: list[NodeHealthStatus]) -> GuardPolicyStatus:
    states = Counter(status.state.lower() for status in final)
    return policy.status.model_copy(
        update={
            "observed_generation": policy.metadata.generation,
            "nodes": len(final),
            "states": dict(sorted(states.items())),
            "breaker": allocation.breaker,
        }
    )
