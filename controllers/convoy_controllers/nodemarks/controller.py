"""The controller of the marks on Nodes. Taints, label and condition show the stored health of the node's
hardware.

Marks follow from stored statuses alone, so no mark stays on a node by mistake: whatever an operator did
before it died, the next reconcile corrects the node. Pods of jobs are evicted from a drained node, and from a
suspect that is to be tested, once the node carries its taint.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from convoy_controllers.cached import CachedObject, Node, Pod
from convoy_controllers.children import Apply, Child, EvictPod, Patch
from convoy_controllers.controller import Controller, Makes, Watch, every_node, itself
from convoy_controllers.keys import Key
from convoy_controllers.nodehealth import sources
from convoy_controllers.nodehealth.controller import ON_NODE
from convoy_controllers.nodehealth.fleet import must_swap
from convoy_controllers.nodehealth.observe import in_order, node_facts, policy_for
from convoy_controllers.nodehealth.observed import HardwareFacts
from convoy_controllers.nodehealth.patches import patches
from convoy_controllers.nodehealth.wanted import marks, marks_of_unknown
from convoy_controllers.plan import Plan
from convoy_controllers.reader import Reader
from convoy_controllers.resources import GUARD_POLICIES, NODE_HEALTHS, NODES, PODS, SPOT_POOLS
from convoy_controllers.spotpool.noticing import closes_node
from convoy_crds import guardpolicy, nodehealth, spotpool
from convoy_crds.guardpolicy import GuardPolicy, Mode
from convoy_crds.nodehealth import NodeHealth, State
from convoy_crds.terms import TAINT_QUARANTINED, TAINT_SPOT_NOTICE, TAINT_UNQUALIFIED, ConditionType

EVICT_SECONDS = 15.0
"""Seconds between two evictions of the same pods, because a PodDisruptionBudget may refuse an eviction."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A node, the stored health of its hardware, and the pods of jobs on the node."""

    node: Node
    facts: HardwareFacts
    policy: GuardPolicy | None = None
    """The policy that applies to the node, or None."""
    health: NodeHealth | None = None
    """The NodeHealth that is bound to the node, or None."""
    members: tuple[Pod, ...] = ()
    """Pods of jobs on the node."""
    leaves_soon: bool = False
    """True if a SpotPool's notice closes the node."""
    unswappable: frozenset[str] = frozenset()
    """Jobs that may not be swapped, each as `namespace/name`."""


def observe(reader: Reader, key: Key) -> Observed | None:
    """Return the node; None if the node does not exist. Also None if its NodeHealth is invalid, because the
    node's taints are unknown then.
    """
    node = reader.node(key.name)
    if node is None:
        return None
    bindings = reader.bindings()
    named = bindings.named.get(key.name, "")
    name = bindings.hardware.get(key.name, "")
    health = reader.get(nodehealth.KIND, name) if name else None
    if named and reader.get(nodehealth.KIND, named) is None and reader.exists(nodehealth.KIND, named):
        return None
    policy = policy_for(in_order(reader.all(guardpolicy.KIND)), node.labels)
    jobs = sources.jobs_on(reader, key.name)
    return Observed(
        node=node,
        facts=HardwareFacts(node=node_facts(reader.reported_node(node), policy, jobs)),
        policy=policy,
        health=health,
        members=tuple(reader.members_on(key.name)),
        leaves_soon=_leaves_soon(reader, node),
        unswappable=frozenset(job.name for job in jobs if not job.swappable),
    )


def plan(observed: Observed, now: datetime) -> Plan:
    """Patch the node's marks, and evict the jobs' pods from a node that they must leave."""
    # No event shows that a job has become swappable. So reconcile such a node with pods again after
    # EVICT_SECONDS.
    waits = bool(observed.members) and _must_leave(observed)
    children = (*_marks(observed, now), *_leaving(observed))
    return Plan(children=children, requeue_after=EVICT_SECONDS if waits else None)


def _marks(observed: Observed, now: datetime) -> Iterable[Child]:
    health, policy, qualified = observed.health, observed.policy, None
    if health is None or health.status.since is None:
        # The hardware has no state yet, so its marks depend on the policy alone.
        wanted = marks_of_unknown(policy, observed.facts)
    else:
        wanted = marks(health.status, policy)
        kinds = {one.type: one for one in health.status.conditions}
        acts = policy is not None and policy.spec.mode is Mode.ACT
        qualified = kinds.get(ConditionType.QUALIFIED) if acts else None
    if observed.leaves_soon:
        wanted = replace(wanted, taints={**wanted.taints, TAINT_SPOT_NOTICE: "NoSchedule"})
    change = patches(observed.node, wanted, qualified, now)
    if change.merge is not None:
        yield Patch(NODES, observed.node.name, change.merge)
    if change.status is not None:
        yield Apply(NODES, {"metadata": {"name": observed.node.name}, **change.status}, subresource="status")


def _leaves_soon(reader: Reader, node: Node) -> bool:
    """Return True if the stored status of a SpotPool has a notice that closes this node."""
    return any(
        one.node_uid == node.uid and one.boot_id == node.boot_id and closes_node(one, pool.spec.notice)
        for pool in reader.all(spotpool.KIND)
        for one in pool.status.notices
    )


def _noticed_nodes(
    reader: Reader, before: CachedObject | None, after: CachedObject | None
) -> Iterable[tuple[str, str]]:
    """Return the keys of the nodes whose notices changed in a SpotPool."""
    found: list[dict[str, Any]] = [
        {str(one.get("node")): one for one in pool.status.get("notices") or ()} if pool is not None else {}
        for pool in (before, after)
    ]
    changed = {name for name in {**found[0], **found[1]} if found[0].get(name) != found[1].get(name)}
    if before is None or after is None or before.generation != after.generation:
        changed = {*found[0], *found[1]}
    return [("", name) for name in sorted(changed)]


def _must_leave(observed: Observed) -> bool:
    return observed.health is not None and must_swap(observed.health.status, observed.policy)


def _leaving(observed: Observed) -> Iterable[EvictPod]:
    # Evict only from a tainted node: otherwise a replacement could be scheduled onto this node again.
    closed = (TAINT_QUARANTINED, TAINT_UNQUALIFIED)
    tainted = any(taint.get("key") in closed for taint in observed.node.taints)
    if not tainted or not _must_leave(observed):
        return
    for pod in observed.members:
        # The job may have forbidden swaps since the drain or test was granted.
        if f"{pod.namespace}/{pod.job}" not in observed.unswappable and not pod.view.deleting:
            yield EvictPod(pod.namespace, pod.name, pod.uid)


def _own_agent(reader: Reader, key: Key) -> Iterable[str]:
    return [key.name]


def _nodes_of(reader: Reader, before: Any | None, after: Any | None) -> Iterable[tuple[str, str]]:
    """Return the keys of the node that the NodeHealth names, and of the node that it named before the
    change.
    """
    found = {(one.status.get("nodeRef") or {}).get("name", "") for one in (before, after) if one is not None}
    return [("", name) for name in sorted(found) if name]


def _drained(reader: Reader, before: Any | None, after: Any | None) -> Iterable[tuple[str, str]]:
    """Return the key of a pod's node if pods must leave the node, or if no NodeHealth names the node.

    The second case matters because a joining node is gated only while it has no pods of jobs.
    """
    for one in (before, after):
        if one is not None and one.view.node:
            there = [*reader.referring(nodehealth.KIND, ON_NODE, one.view.node)]
            if any(_empties(health) for health in there) or (not there and reader.live(guardpolicy.KIND)):
                yield "", one.view.node


def _empties(health: CachedObject) -> bool:
    swaps = (health.status.get("sweep") or {}).get("swaps", False)
    return bool(swaps) or health.status.get("state") == State.DRAINING


def _shown(health: CachedObject) -> Hashable:
    """Return the fields of a NodeHealth that the Node shows."""
    status = health.status
    conditions = tuple(str(sorted(one.items())) for one in status.get("conditions") or ())
    node = (status.get("nodeRef") or {}).get("name")
    return status.get("state"), bool(status.get("sweep")), node, status.get("policy"), conditions


def _state_changed(before: Any | None, after: Any | None) -> bool:
    """Return True if the state changed. The Node must show its state at once: it gets pods until it carries
    its taint.
    """
    return after is not None and (before is None or before.status.get("state") != after.status.get("state"))


def _rules(policy: CachedObject) -> Hashable:
    return policy.generation, ((policy.status.get("breaker") or {}).get("state"))


CONTROLLER = Controller(
    NODES,
    summary="Shows the stored health of hardware on its Node, and evicts pods of jobs from a node that is "
    "drained, or tested as a suspect.",
    observe=observe,
    plan=plan,
    makes=(Makes(NODES, (Patch,)), Makes(NODES, (Apply,), subresource="status"), Makes(PODS, (EvictPod,))),
    watches=(
        Watch(NODES, itself, sources.concern),
        Watch(NODE_HEALTHS, _nodes_of, _shown, urgent=_state_changed),
        Watch(PODS, _drained, lambda pod: (pod.view.node, pod.view.deleting, pod.view.needs_node)),
        Watch(GUARD_POLICIES, every_node, _rules),
        Watch(SPOT_POOLS, _noticed_nodes, lambda pool: (pool.generation, str(pool.status.get("notices")))),
    ),
    waits_for=_own_agent,
    reflector=True,
)
