"""The controller of GuardPolicies. It decides about all hardware of a policy together.

The policy's status (the breaker) is stored first, then the statuses of the NodeHealths. Actions follow only
from stored statuses: the controller of NodeHealths starts sweeps, and the controller of node marks sets
taints and starts swaps. So if an operator dies between two writes, its successor still counts every granted
request.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from convoy_controllers.cached import CachedObject
from convoy_controllers.children import Create, Event, PatchStatus, manifest
from convoy_controllers.controller import Controller, Makes, Pace, all_agents, every
from convoy_controllers.keys import Key
from convoy_controllers.nodehealth import fleet as fleets
from convoy_controllers.nodehealth import observe as observing
from convoy_controllers.nodehealth import sources
from convoy_controllers.nodehealth.observe import Hardware
from convoy_controllers.nodehealth.observed import Fleet
from convoy_controllers.nodehealth.record import ACCUSED
from convoy_controllers.plan import Plan
from convoy_controllers.reader import Reader
from convoy_controllers.resources import GUARD_POLICIES, HEALTH_SWEEPS, NODE_HEALTHS, NODES
from convoy_crds import nodehealth
from convoy_crds.guardpolicy import KIND, GuardPolicy, GuardPolicyStatus
from convoy_crds.nodehealth import NodeHealth, NodeHealthStatus
from convoy_crds.reasons.catalogue import Reasons, all_reasons

BUSY_SECONDS = 1.0
"""Seconds between two reconciles while a node is suspected or out of service. They are needed because no
event shows that such a node can change its state.
"""
_REASONS = {one.name: one for one in all_reasons()}


@dataclass(frozen=True, slots=True)
class Observed:
    """A policy, and all hardware in the cluster."""

    policy: GuardPolicy
    hardware: Hardware
    unreadable: frozenset[str] = field(default_factory=frozenset)
    """Names of hardware whose NodeHealth is invalid."""


def observe(reader: Reader, key: Key) -> Observed | None:
    """Return the policy with all inputs of the decision; None if the policy does not exist."""
    policy = reader.get(KIND, key.name)
    if policy is None:
        return None
    hardware = sources.hardware(reader)
    missing = set(hardware.bindings.claims) - set(hardware.healths)
    unreadable = frozenset(name for name in missing if reader.exists(nodehealth.KIND, name))
    return Observed(policy, hardware, unreadable)


def plan(observed: Observed, now: datetime) -> Plan:
    """Return the changes that follow from one decision about all hardware of the policy."""
    policy = observed.policy
    fleet = observing.fleet(policy, observed.hardware, now)
    found = fleets.decide(fleet, now)
    unknown = observing.unknown(policy, observed.hardware)
    created = [_created(name) for name in unknown if name not in observed.unreadable]
    members = {member.name: member.health for member in fleet.members}
    status = found.policy
    return Plan(
        status=status.to_dict() if status is not None else None,
        status_first=True,
        children=(*created, *(_stored(members[name], after) for name, after in found.statuses.items())),
        events=_breaker(policy, status) if status is not None else (),
        requeue_after=BUSY_SECONDS if created or _busy(fleet) else fleets.RECONCILE_SECONDS,
    )


def _created(name: str) -> Create:
    return Create(NODE_HEALTHS, manifest(NODE_HEALTHS, name, {}))


def _stored(health: NodeHealth, after: NodeHealthStatus) -> PatchStatus:
    version = health.metadata.resource_version or ""
    return PatchStatus(
        NODE_HEALTHS, health.metadata.name, after.to_dict(), version, state_change_events(health, after)
    )


def state_change_events(health: NodeHealth, after: NodeHealthStatus) -> tuple[Event, ...]:
    """Return an Event for each state change that the stored NodeHealth does not contain yet."""
    known = health.status.history[-1].at if health.status.history else None
    return tuple(
        Event(_REASONS[change.reason], f"{change.before} -> {change.after}: {change.message}")
        for change in after.history
        if known is None or change.at > known
    )


def _breaker(policy: GuardPolicy, after: GuardPolicyStatus) -> tuple[Event, ...]:
    before, breaker = policy.status.breaker.state, after.breaker
    if breaker.state is before:
        return ()
    reason = _REASONS.get(breaker.reason, Reasons.BREAKER_OPEN)
    return (Event(reason, f"breaker {before} -> {breaker.state}: {breaker.message}"),)


def _busy(fleet: Fleet) -> bool:
    return any(member.facts.suspicions or member.health.status.state in ACCUSED for member in fleet.members)


def _verdicts(sweep: CachedObject) -> Hashable:
    status: Mapping[str, Any] = sweep.status
    return status.get("done"), status.get("phase")


CONTROLLER = Controller(
    KIND,
    summary="Decides the state of all hardware under a policy together, within its budgets.",
    observe=observe,
    plan=plan,
    validity=None,
    makes=(Makes(NODE_HEALTHS, (Create, PatchStatus), owned=False),),
    watches=(
        every(KIND, NODES, sources.concern, own=False),
        every(KIND, NODE_HEALTHS, own=False),
        every(KIND, HEALTH_SWEEPS, _verdicts),
        # A change of another policy's selector or priority, or its deletion, can change which policy applies
        # to a node.
        every(KIND, GUARD_POLICIES, lambda policy: policy.generation),
    ),
    waits_for=all_agents,
    pace=Pace(min_seconds=0.2, max_seconds=2.0),
    reflector=True,
)
