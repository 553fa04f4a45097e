"""Chooses the pods of the pool that must leave their nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from convoy_controllers.cached import Node
from convoy_controllers.spotpool.capacity import Choice
from convoy_controllers.spotpool.observed import Observed, PoolPod
from convoy_crds.spotpool_status import Grant, NodeNotice, NoticeKind, NoticeState


def draining_nodes(notices: Iterable[NodeNotice]) -> frozenset[str]:
    """Return the names of the nodes that the pool's pods must leave."""
    return frozenset(
        one.node
        for one in notices
        if one.state is NoticeState.DRAINING and one.kind is not NoticeKind.REBALANCE
    )


def leaving(
    observed: Observed,
    notices: Iterable[NodeNotice],
    grants: Sequence[Grant],
    choice: Choice,
    free: Sequence[Node],
    kept_on_demand: int,
) -> list[PoolPod]:
    """Return the pods to evict: those on draining nodes, those that return to spot nodes, and those above
    their role's grant. `free`: the usable spot nodes. `kept_on_demand`: number of on-demand nodes that the
    hourly budget lets keep their pods.
    """
    draining = draining_nodes(notices)
    found = {pod.uid: pod for pod in observed.pods if pod.node in draining}
    for pod in (*_too_expensive(observed, kept_on_demand), *_returning(observed, choice, free)):
        found.setdefault(pod.uid, pod)
    # A pod that leaves anyway makes room for one that would have to leave.
    staying = [pod for pod in observed.pods if pod.uid not in found and not pod.deleting]
    for pod in _above_grant(staying, grants):
        found.setdefault(pod.uid, pod)
    return [pod for pod in found.values() if not pod.deleting]


def _above_grant(pods: Iterable[PoolPod], grants: Iterable[Grant]) -> list[PoolPod]:
    """Return the newest pods of each role above its grant. A role without a grant may have ended, and its
    job deletes its pods.
    """
    by_role: dict[tuple[str, str, str], list[PoolPod]] = {}
    for pod in pods:
        by_role.setdefault((pod.namespace, pod.job, pod.role), []).append(pod)
    found: list[PoolPod] = []
    for grant in grants:
        there = sorted(
            by_role.get((grant.namespace, grant.job, grant.role), ()), key=lambda pod: (pod.created, pod.name)
        )
        found += there[grant.pods :]
    return found


def _too_expensive(observed: Observed, kept: int) -> list[PoolPod]:
    """Return the pods on the on-demand nodes above the number that the hourly budget allows. The nodes with
    the newest pods are left first.
    """
    newest = {
        node.name: max(pod.created for pod in observed.pods if pod.node == node.name)
        for node in observed.on_demand
    }
    left = set(sorted(newest, key=lambda name: (newest[name], name))[kept:])
    return [pod for pod in observed.pods if pod.node in left]


def _returning(observed: Observed, choice: Choice, free: Sequence[Node]) -> list[PoolPod]:
    """Return the newest pods on other nodes for which spot nodes have room."""
    if not choice.spot:
        return []
    names = {node.name for node in free}
    spot = {node.name for node in observed.nodes}
    moving = sorted(
        (pod for pod in observed.pods if pod.node not in spot), key=lambda pod: (-pod.created, pod.name)
    )
    used = sum(pod.node in names for pod in observed.pods)
    # A pod that was evicted a moment ago has no node yet, and needs room too.
    pending = max(0, _granted(observed) - len(observed.pods))
    room = len(names) * observed.pool.spec.pods_per_node - used - pending
    return moving[: max(0, room)] or moving[: 1 if choice.probe else 0]


def _granted(observed: Observed) -> int:
    return sum(grant.pods for grant in observed.pool.status.grants)
