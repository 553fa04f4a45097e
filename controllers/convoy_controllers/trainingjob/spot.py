"""Limits the pods of roles with a SpotPool to the pool's grants, and places them on the pool's nodes.

The pool decides how many pods each role may have, and evicts pods that must leave. The job only creates no
more than granted, and moves pods that have no node yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from convoy_controllers.children import Delete, delete_pod
from convoy_controllers.spotpool.placement import is_outdated, placed
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.views import PodView
from convoy_controllers.workers.pod_ends import ended
from convoy_crds.layout import Slot
from convoy_crds.reasons.catalogue import Reasons, all_reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.spotpool import SpotPool
from convoy_crds.spotpool_status import CapacityMode
from convoy_crds.terms import ConditionType

_REASONS = {one.name: one for one in all_reasons()}


@dataclass(frozen=True, slots=True)
class RoleGrant:
    """The pods that a role may have on the nodes of its pool."""

    pool: SpotPool | None = None
    """The pool; None if it does not exist."""
    pods: int = 0
    mode: CapacityMode = CapacityMode.SPOT
    reason: Reason | None = None
    """Reason why the role gets fewer pods than it wants; None if it gets all."""
    message: str = ""


def grants(observed: Observed) -> dict[str, RoleGrant]:
    """Return the grant of each role that names a pool, by name of the role."""
    roles = enumerate(observed.job.spec.roles)
    return {
        role.name: _grant(observed, index, role.name, role.spot_pool)
        for index, role in roles
        if role.spot_pool is not None
    }


def _grant(observed: Observed, index: int, role: str, name: str) -> RoleGrant:
    pool = observed.pools.get(name)
    if pool is None:
        known = ", ".join(observed.known_pools)
        remark = f"pools for this namespace: {known}" if known else "there are none for this namespace yet"
        reason = Reasons.UNKNOWN_POOL
        return RoleGrant(reason=reason, message=reason.format(index=index, pool=name, known=remark))
    metadata = observed.job.metadata
    for one in pool.status.grants:
        if (one.namespace, one.job, one.role) == (metadata.namespace, metadata.name, role):
            return RoleGrant(pool, one.pods, one.mode, _REASONS.get(one.reason), one.message)
    reason = Reasons.POOL_PENDING
    return RoleGrant(pool, reason=reason, message=reason.format(pool=name, index=index))


class SpotRooms:
    """The room that is left for further pods of each role with a pool."""

    def __init__(
        self, found: Mapping[str, RoleGrant], layout: Iterable[Slot], own: Mapping[str, PodView]
    ) -> None:
        """`own`: the job's own pods that stay, by name."""
        there = Counter(
            slot.role for slot in layout if (pod := own.get(slot.pod)) is not None and not ended(pod)
        )
        self._grants = found
        self._rooms = {role: grant.pods - there[role] for role, grant in found.items()}

    def place(self, slot: Slot, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return the manifest of a slot's pod with the pool's settings; None if there is no room for it."""
        if not self.reserve(slot):
            return None
        grant = self._grants.get(slot.role)
        return body if grant is None or grant.pool is None else placed(body, grant.pool, grant.mode)

    def reserve(self, slot: Slot) -> bool:
        """Return True if there is room for the slot's pod. The room is then used up."""
        grant = self._grants.get(slot.role)
        if grant is None:
            return True
        if grant.pool is None or self._rooms[slot.role] <= 0:
            return False
        self._rooms[slot.role] -= 1
        return True


def misplaced(
    found: Mapping[str, RoleGrant], layout: Sequence[Slot], own: Mapping[str, PodView]
) -> Iterator[Delete]:
    """Yield the deletions of pods without a node that are above their role's grant, or that wait for nodes
    which the pool does not select any more.
    """
    for role, grant in found.items():
        if grant.pool is None:
            continue
        pods = [pod for slot in layout if slot.role == role and (pod := own.get(slot.pod))]
        running = [pod for pod in pods if not ended(pod) and not pod.deleting]
        above = len(running) - grant.pods
        for pod in reversed(running):
            if pod.node:
                continue
            if above > 0 or is_outdated(pod.annotations, grant.pool, grant.mode):
                above -= 1
                yield delete_pod(pod.name, pod.uid)


def report(draft: Draft) -> None:
    """Set the condition SpotPoolReady. Without a role that names a pool, remove it."""
    found = grants(draft.observed)
    if not found:
        draft.drop(ConditionType.SPOT_POOL_READY)
        return
    for grant in found.values():
        if grant.reason is not None:
            holds = None if grant.reason is Reasons.POOL_PENDING else False
            draft.condition(ConditionType.SPOT_POOL_READY, holds, grant.reason, grant.message)
            return
    counts = "; ".join(
        f"SpotPool {grant.pool.metadata.name!r} grants all {grant.pods} pods of role {role}"
        for role, grant in found.items()
        if grant.pool is not None
    )
    reason = Reasons.POOL_GRANTED
    draft.condition(ConditionType.SPOT_POOL_READY, True, reason, reason.format(counts=counts))
