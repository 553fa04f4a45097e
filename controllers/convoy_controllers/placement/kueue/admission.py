"""The state of a Workload, as Kueue shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from convoy_controllers.placement.kueue.names import (
    ADMITTED,
    EVICTED,
    FINISHED,
    PODS_READY,
    PREEMPTED,
    QUOTA_RESERVED,
)
from convoy_controllers.placement.kueue.topology import Assignment, decode

Raw = Mapping[str, Any]
DEACTIVATED = "Deactivated"
"""Beginning of the reasons for which Kueue deactivates a Workload."""
_PENDING_CHECKS = ("Pending", "Retry", "Rejected")


class Stage(StrEnum):
    """Stage of a Workload. It says whether pods may run."""

    WAITING = "Waiting"
    """Kueue has not admitted it. No pod may run."""
    ADMITTED = "Admitted"
    """Pods may run."""
    EVICTED = "Evicted"
    """Pods must end. The reservation must be cleared after that."""
    INACTIVE = "Inactive"
    """Somebody has deactivated it. No pod may run."""
    FINISHED = "Finished"
    """It needs no quota any more."""


@dataclass(frozen=True, slots=True)
class PodSetAdmission:
    """The quota of one podSet."""

    count: int
    """Number of pods that may run."""
    flavors: tuple[str, ...] = ()
    """ResourceFlavors of the pods' resources."""
    updates: tuple[Raw, ...] = ()
    """Changes of the pods that admission checks ask for."""
    places: Assignment | None = None
    """Places of the pods; None without topology-aware scheduling."""


@dataclass(frozen=True, slots=True)
class Admission:
    """The state of a Workload."""

    stage: Stage
    message: str = ""
    """Kueue's own words about the stage."""
    cause: str = ""
    """Kueue's reason for an eviction; empty without one."""
    reserved: bool = False
    """True while quota is reserved."""
    cluster_queue: str = ""
    pod_sets: Mapping[str, PodSetAdmission] = field(default_factory=dict)
    """The admitted podSets by name; empty unless quota is reserved."""
    unhealthy: frozenset[str] = frozenset()
    """Hostnames of failed nodes for which Kueue seeks a replacement."""
    reclaimable: Mapping[str, int] = field(default_factory=dict)
    """Pods of each podSet whose quota has been given back."""
    fault: str = ""
    """Description of a part of the status that Convoy cannot read; empty if there is none."""


def condition(raw: Raw, kind: str) -> Raw:
    """Return a condition of a Workload; empty without it."""
    for one in (raw.get("status") or {}).get("conditions") or ():
        if one.get("type") == kind:
            found: Raw = one
            return found
    return {}


def holds(raw: Raw, kind: str) -> bool:
    """Return True if a condition of a Workload is True."""
    return condition(raw, kind).get("status") == "True"


def admission(raw: Raw) -> Admission:
    """Return the state of a Workload."""
    status = raw.get("status") or {}
    reserved = holds(raw, QUOTA_RESERVED)
    reclaimable = {str(one["name"]): int(one["count"]) for one in status.get("reclaimablePods") or ()}
    evicted = condition(raw, EVICTED) if holds(raw, EVICTED) else {}
    cause = _cause(raw, evicted)
    if holds(raw, FINISHED):
        return Admission(Stage.FINISHED, _text(condition(raw, FINISHED)), cause, reserved)
    if evicted and reserved:
        return Admission(Stage.EVICTED, str(evicted.get("message") or ""), cause, reserved)
    if (raw.get("spec") or {}).get("active") is False:
        stage = Stage.EVICTED if reserved else Stage.INACTIVE
        why = str(evicted.get("message") or "its spec.active is false")
        return Admission(stage, why, cause or DEACTIVATED, reserved)
    if not holds(raw, ADMITTED) or not reserved:
        return Admission(Stage.WAITING, _waiting(raw, evicted), cause, reserved)
    found = status.get("admission") or {}
    try:
        pod_sets, fault = _pod_sets(status), ""
    except (KeyError, TypeError, ValueError) as error:
        pod_sets, fault = {}, f"status.admission: {error}"
    return Admission(
        stage=Stage.ADMITTED,
        reserved=True,
        cluster_queue=str(found.get("clusterQueue") or ""),
        pod_sets=pod_sets,
        unhealthy=frozenset(str(one["name"]) for one in status.get("unhealthyNodes") or ()),
        reclaimable=reclaimable,
        fault=fault,
    )


def _pod_sets(status: Raw) -> dict[str, PodSetAdmission]:
    updates: dict[str, list[Raw]] = {}
    for check in status.get("admissionChecks") or ():
        for one in check.get("podSetUpdates") or ():
            updates.setdefault(str(one["name"]), []).append(one)
    found = {}
    for one in (status.get("admission") or {}).get("podSetAssignments") or ():
        name = str(one["name"])
        flavors = tuple(dict.fromkeys(str(flavor) for flavor in (one.get("flavors") or {}).values()))
        found[name] = PodSetAdmission(
            count=int(one.get("count") or 0),
            flavors=flavors,
            updates=tuple(updates.get(name, ())),
            places=decode(one.get("topologyAssignment")),
        )
    return found


def _cause(raw: Raw, evicted: Raw) -> str:
    """Return the reason of an eviction. A preemption has a finer reason of its own."""
    reason = str(evicted.get("reason") or "")
    finer = condition(raw, PREEMPTED).get("reason") if reason == PREEMPTED else None
    return f"{reason}/{finer}" if finer else reason


def _waiting(raw: Raw, evicted: Raw) -> str:
    """Return why a Workload is not admitted."""
    status = raw.get("status") or {}
    quota = condition(raw, QUOTA_RESERVED)
    if quota.get("status") == "True":
        checks = [
            f"admission check {one.get('name')}: {one.get('state')} {one.get('message') or ''}".rstrip()
            for one in status.get("admissionChecks") or ()
            if one.get("state") in _PENDING_CHECKS
        ]
        return "; ".join(checks) or "quota is reserved, the admission is not complete"
    why = _text(quota) if quota else "Kueue has not read the Workload yet; check that Kueue runs"
    at = (status.get("requeueState") or {}).get("requeueAt")
    if evicted and at:
        why = f"{evicted.get('reason')}: {evicted.get('message')}; Kueue queues the job again at {at}"
    return why


def _text(found: Raw) -> str:
    return str(found.get("message") or found.get("reason") or "")


def ready_condition(raw: Raw) -> Raw:
    """Return the stored PodsReady condition; empty without it."""
    return condition(raw, PODS_READY)


def conditions(raw: Raw) -> Sequence[Raw]:
    """Return all conditions of a Workload."""
    found: Sequence[Raw] = (raw.get("status") or {}).get("conditions") or ()
    return found
