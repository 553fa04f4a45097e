"""The controller of NodeHealths. It creates the sweeps that nodes wait for, and updates the status of
hardware without a policy.

The status of hardware under a policy is decided for all hardware together (guardpolicy/controller.py).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from convoy_controllers.cached import CachedObject
from convoy_controllers.children import Child, Create, manifest
from convoy_controllers.controller import Controller, Makes, Watch, by_field, every, itself
from convoy_controllers.keys import Key
from convoy_controllers.nodehealth import fleet as fleets
from convoy_controllers.nodehealth import sources
from convoy_controllers.nodehealth.binding import Bindings, hardware_name
from convoy_controllers.nodehealth.observe import Hardware, by_node, in_order, member, results
from convoy_controllers.nodehealth.observed import Member
from convoy_controllers.nodehealth.sweeping import OPTIONAL_CAUSES
from convoy_controllers.plan import Plan
from convoy_controllers.reader import Reader
from convoy_controllers.resources import GUARD_POLICIES, HEALTH_SWEEPS, NODE_HEALTHS, NODES
from convoy_crds import guardpolicy, healthsweep
from convoy_crds.guardpolicy import GuardPolicy, Mode
from convoy_crds.nodehealth import KIND

ON_NODE = "status.nodeRef.name"
"""Field path of the name of the node on which the hardware was last seen."""
_KEPT_SECONDS = 86_400
"""Seconds for which a finished sweep is kept. The NodeHealth stores the sweep's result."""
_KEPT_OPTIONAL_SECONDS = 3_600
"""Seconds for which a finished sweep is kept if there was no evidence against the node."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One piece of hardware, with its policies and its sweep."""

    member: Member
    policy: GuardPolicy | None = None
    """The policy that applies to the hardware, or None."""
    requester: GuardPolicy | None = None
    """The policy that `status.policy` names. The rules of this policy apply to the sweep."""
    sweep_exists: bool = True
    """False if the HealthSweep that the status names does not exist."""


def observe(reader: Reader, key: Key) -> Observed | None:
    """Return the hardware with its policies and its sweep; None if its NodeHealth does not exist or is
    invalid.
    """
    health = reader.get(KIND, key.name)
    if health is None:
        return None
    bindings, ref = reader.bindings(), health.status.sweep
    node = bindings.chosen.get(key.name)
    seen = Hardware(
        policies=in_order(reader.all(guardpolicy.KIND)),
        healths={key.name: health},
        bindings=Bindings(chosen={key.name: node} if node is not None else {}),
        jobs=by_node(sources.jobs_on(reader, node.name)) if node is not None else {},
    )
    policy = seen.policy_of(key.name)
    if policy is None:
        swept = results(reader.all(healthsweep.KIND), key.name)
        seen = Hardware(seen.policies, seen.healths, seen.bindings, seen.jobs, swept=swept)
    return Observed(
        member=member(key.name, policy, seen, reader.now()),
        policy=policy,
        requester=reader.get(guardpolicy.KIND, health.status.policy) if health.status.policy else None,
        sweep_exists=ref is None or reader.exists(healthsweep.KIND, ref.name),
    )


def plan(observed: Observed, now: datetime) -> Plan:
    """Create the sweep that the stored status names; update the status of hardware without a policy."""
    children = tuple(_sweep(observed))
    if observed.policy is not None:
        return Plan(children=children)
    status = fleets.unguarded(observed.member, now)
    after = status.to_dict() if status is not None else None
    return Plan(status=after, children=children, requeue_after=fleets.RECONCILE_SECONDS)


def _sweep(observed: Observed) -> Iterable[Child]:
    status, policy = observed.member.health.status, observed.requester
    ref, node = status.sweep, status.node_ref.name
    if ref is None or observed.sweep_exists or policy is None or policy.spec.sweeps is None or not node:
        return
    if policy.spec.mode is Mode.OBSERVE:
        # The policy may have changed since the sweep was granted.
        return
    spec = {
        "nodes": [node],
        "deadline": policy.spec.sweeps.deadline,
        "ttlSecondsAfterFinished": _KEPT_OPTIONAL_SECONDS if ref.cause in OPTIONAL_CAUSES else _KEPT_SECONDS,
    }
    yield Create(HEALTH_SWEEPS, manifest(HEALTH_SWEEPS, ref.name, spec))


def _own_agent(reader: Reader, key: Key) -> Iterable[str]:
    node = reader.bindings().chosen.get(key.name)
    return [node.name] if node is not None else []


def _bound(reader: Reader, before: Any | None, after: Any | None) -> Iterable[tuple[str, str]]:
    """Return the keys of the hardware that a node reports and of the hardware that was last seen on the
    node.

    Do not call `bindings()` here: a thousand nodes may change together, and each call would bind all nodes.
    """
    item: Any = after if after is not None else before
    names = {one.name for one in reader.referring(KIND, ON_NODE, item.name)}
    reported = hardware_name(reader.reported_node(item))
    return [("", name) for name in sorted({*names, reported}) if reader.exists(KIND, name)]


def _sweep_request(health: CachedObject) -> Hashable:
    return ((health.status.get("sweep") or {}).get("name"), health.status.get("policy"))


def _rules(policy: CachedObject) -> Hashable:
    return policy.generation


CONTROLLER = Controller(
    KIND,
    summary="Creates the sweep that hardware waits for, and keeps the status of hardware without a policy.",
    observe=observe,
    plan=plan,
    validity=None,
    makes=(Makes(HEALTH_SWEEPS, (Create,), owned=False),),
    watches=(
        Watch(NODE_HEALTHS, itself, _sweep_request),
        Watch(NODES, _bound, sources.concern, index=ON_NODE),
        by_field(KIND, HEALTH_SWEEPS, "status.sweep.name", lambda sweep: sweep.uid),
        every(KIND, GUARD_POLICIES, _rules),
    ),
    waits_for=_own_agent,
    reflector=True,
)
