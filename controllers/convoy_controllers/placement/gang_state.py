"""The PodGroup of a gang: its children in a plan, and its state for conditions. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from convoy_controllers.cached import CachedObject
from convoy_controllers.children import Apply
from convoy_controllers.placement.gang_choice import GangSpec
from convoy_controllers.placement.gangs import BACKENDS
from convoy_controllers.placement.gangs.backend import Backend, GangGroup, GangState
from convoy_controllers.placement.gangs.volcano import DEFAULT_QUEUE
from convoy_controllers.resources import Resource
from convoy_controllers.views import PodView
from convoy_controllers.workers.pod_ends import ended
from convoy_controllers.workers.refusal import Refusal
from convoy_controllers.workers.violation import Violation
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason

AFTER_GROUP_SECONDS = 0.05
"""Seconds after the request for the PodGroup at which the pods are created."""
IGNORED_SECONDS = 10.0
"""Seconds after the start of a pod within which the scheduler reports the gang's placement."""
UNSEEN_SECONDS = 30.0
"""Age in seconds at which a pod is reported that no scheduler has tried to place."""


@dataclass(frozen=True, slots=True)
class GangReport:
    """The state of a gang, as a condition shows it."""

    holds: bool
    """True if all pods have nodes."""
    reason: Reason
    message: str
    wait_seconds: float | None = None
    """Seconds until the report may change without an event; None if there is no such time."""

    @property
    def warning(self) -> Violation | None:
        """Return the reason if it needs attention; None otherwise."""
        return Violation(self.reason, self.message) if self.reason.warning else None


def written(served: Collection[Resource]) -> tuple[Resource, ...]:
    """Return the resources in which Convoy writes PodGroups.

    The API server shows an object in every version of its API. Only the version that Convoy writes counts,
    because the object would look like a leftover in the others.
    """
    versions = (one.version(served) for one in BACKENDS)
    return tuple(one for one in versions if one is not None)


def find(groups: Iterable[CachedObject], name: str) -> Mapping[str, Any] | None:
    """Return the PodGroup of this name as JSON; None if it does not exist."""
    return next((one.raw for one in groups if one.name == name), None)


def apply(found: GangGroup, served: Collection[Resource]) -> list[Apply]:
    """Return the PodGroup to apply; nothing while its API is not served."""
    resource = found.backend.version(served)
    return [Apply(resource, found.backend.manifest(found.gang, resource))] if resource else []


def refused(found: GangGroup, refusals: Mapping[str, Refusal]) -> Violation | None:
    """Return the API server's reason for refusing the PodGroup; None if it has not refused it."""
    refusal, reason = refusals.get(found.gang.name), Reasons.GANG_REFUSED
    if refusal is None:
        return None
    return Violation(reason, reason.format(group=found.gang.name, why=refusal.message))


def chooses_domain(found: GangGroup, group: Mapping[str, Any] | None) -> bool:
    """Return True if the scheduler itself chooses the domain of the gang. `group`: its PodGroup."""
    return group is not None and found.backend.state(group).chooses_domain


def with_kept_queue(wanted: GangSpec, backend: Backend, group: Mapping[str, Any] | None) -> GangSpec:
    """Return the gang with the queue of its PodGroup `group`, which stays although the job may name another
    one by now.
    """
    there = str(((group or {}).get("spec") or {}).get("queue") or "") if backend.queues else ""
    if not there or (there == DEFAULT_QUEUE and not wanted.queue):
        return wanted
    return replace(wanted, queue=there)


def waits_freely(found: GangGroup, pods: Collection[PodView]) -> bool:
    """Return True if the gang waits for its scheduler and holds no nodes meanwhile. `pods`: its live pods.

    Without its least number of pods no scheduler places it: a quota may refuse the others.
    """
    enough = len(pods) >= max(1, found.gang.least)
    return enough and not found.backend.holds_nodes and not any(one.node for one in pods)


def in_use(group: Mapping[str, Any] | None, pods: Iterable[PodView]) -> bool:
    """Return True if one of the pods was created after the PodGroup, so that a scheduler counts it as one of
    the gang. `group`: the PodGroup; None if it does not exist.
    """
    text = str(((group or {}).get("metadata") or {}).get("creationTimestamp") or "")
    if not text:
        return False
    created = datetime.fromisoformat(text).timestamp()
    return any(one.created >= created for one in pods)


def live(pods: Iterable[PodView]) -> list[PodView]:
    """Return the pods that have not ended and are not being deleted."""
    return [one for one in pods if not ended(one) and not one.deleting]


def report(
    found: GangGroup,
    group: Mapping[str, Any] | None,
    pods: Sequence[PodView],
    wanted: int,
    *,
    scheduler: str,
    now: datetime,
) -> GangReport:
    """Return the state of a gang. `group`: its PodGroup; None if it does not exist. `pods`: its live pods.
    `wanted`: number of pods that it should have.
    """
    state = found.backend.state(group) if group is not None else GangState()
    bound = [one for one in pods if one.node]
    reason, holds, wait = Reasons.GANG_WAITING, False, None
    if len(bound) >= wanted:
        reason, holds = Reasons.GANG_PLACED, True
    # A scheduler writes no condition for pods that had their nodes before the PodGroup existed.
    if found.backend.reports and state.placed is None and bound and in_use(group, bound):
        wait = _left(bound, IGNORED_SECONDS, now)
        if wait is None:
            reason, holds = Reasons.GANG_IGNORED, False
    elif not bound and len(pods) >= found.gang.least and not any(one.judged for one in pods):
        wait = _left(pods, UNSEEN_SECONDS, now)
        if wait is None:
            reason = Reasons.SCHEDULER_MISSING
    why = state.message or next((one.unschedulable for one in pods if one.unschedulable), "")
    message = reason.format(
        group=found.gang.name,
        backend=found.backend.name.value,
        count=wanted if holds else found.gang.least,
        why=why or f"{len(pods)} of {wanted} pods exist",
        scheduler=scheduler,
        pod=pods[0].name if pods else "",
        seconds=round(UNSEEN_SECONDS),
    )
    return GangReport(holds, reason, message, wait)


def _left(pods: Sequence[PodView], seconds: float, now: datetime) -> float | None:
    """Return the seconds until the youngest of the pods is `seconds` old; None if it is."""
    youngest = max(one.started or one.created for one in pods)
    left = youngest + seconds - now.timestamp()
    return min(left, seconds) if left > 0 else None
