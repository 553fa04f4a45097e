"""Chooses the gang scheduler of a job, and reports what it does.

The choice is stored in the status when the first pods are created. Pods that replace others join the PodGroup
of those that stay. After a start without any pod, the job gets another PodGroup: a scheduler counts pods that
still end, so that old pods would let the gang start in part.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from convoy_controllers.children import Apply, owner_reference
from convoy_controllers.placement.gangs import BACKENDS
from convoy_controllers.placement.gangs.backend import Backend, Gang, GangGroup, GangState
from convoy_controllers.placement.requests import pod_requests
from convoy_controllers.resources import Resource
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.views import PodView
from convoy_controllers.workers.pod_ends import ended
from convoy_controllers.workers.violation import Violation
from convoy_crds.layout import Slot, present
from convoy_crds.placement import GangBackend, Pack, PlacementStatus
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob import KIND, Role, TrainingJob
from convoy_crds.trainingjob_status import TrainingJobStatus

GANG_RESOURCES: tuple[Resource, ...] = tuple(one for backend in BACKENDS for one in backend.resources)
IGNORED_SECONDS = 10.0
"""Seconds after the start of a pod within which the scheduler reports the gang's placement."""
UNSEEN_SECONDS = 30.0
"""Age in seconds at which a pod is reported that no scheduler has tried to place."""
_BY_NAME: Mapping[GangBackend, Backend] = {one.name: one for one in BACKENDS}


def select(observed: Observed, status: TrainingJobStatus, own: Collection[PodView]) -> Violation | None:
    """Choose the backend and the PodGroup, unless the job has pods, and store them in the status.

    Return the reason why the job must not create pods; None if it may.
    """
    if any(not one.deleting and not ended(one) for one in own):
        return None
    placed = status.placement or PlacementStatus()
    backend, wrong = _backend(observed)
    if wrong is not None:
        return wrong
    placed.gang = backend.name if backend else GangBackend.NONE
    placed.group = _group_name(observed.job, status, placed.gang) if backend else ""
    status.placement = placed
    return None


def group(observed: Observed, status: TrainingJobStatus) -> GangGroup | None:
    """Return the job's gang with its backend, according to the status; None without a gang scheduler."""
    placed = status.placement
    if placed is None or not placed.group or placed.gang is None:
        return None
    backend = _BY_NAME.get(placed.gang)
    return GangGroup(backend, _gang(observed.job, backend, placed.group)) if backend else None


def apply(observed: Observed, found: GangGroup | None) -> list[Apply]:
    """Return the PodGroup to apply; nothing without a gang scheduler, or while its API is not served."""
    resource = found.backend.version(observed.served) if found else None
    if found is None or resource is None:
        return []
    return [Apply(resource, found.backend.manifest(found.gang, resource))]


def refused(observed: Observed, found: GangGroup | None) -> Violation | None:
    """Return the API server's reason for refusing the PodGroup; None if it has not refused it."""
    refusal = observed.create_errors.get(found.gang.name) if found else None
    if found is None or refusal is None:
        return None
    reason = Reasons.GANG_REFUSED
    return Violation(reason, reason.format(group=found.gang.name, why=refusal.message))


def exists(observed: Observed, found: GangGroup | None) -> bool:
    """Return True if the PodGroup exists, or if the job needs none. Pods are created after their PodGroup."""
    return found is None or _object(observed, found) is not None


def follows_scheduler(observed: Observed, status: TrainingJobStatus) -> bool:
    """Return True if the scheduler itself chooses the domain of the job's pods."""
    found = group(observed, status)
    raw = _object(observed, found) if found else None
    return found is not None and raw is not None and found.backend.state(raw).chooses_domain


def report(
    draft: Draft, found: GangGroup | None, own: Mapping[str, PodView], layout: Sequence[Slot]
) -> float | None:
    """Set the condition GangScheduled. Return the seconds until it may change without an event; None if
    there is no such time. `layout`: all slots of the job.
    """
    job, status = draft.observed.job, draft.status
    pods = len(present(job.model_copy(update={"status": status}))) if status.formed else len(layout)
    if found is None:
        draft.drop(ConditionType.GANG_SCHEDULED)
        return None
    raw = _object(draft.observed, found)
    state = found.backend.state(raw) if raw is not None else GangState()
    live = [one for one in own.values() if not ended(one) and not one.deleting]
    bound = [one for one in live if one.node]
    facts = {"group": found.gang.name, "backend": found.backend.name.value}
    reason, holds, wait = Reasons.GANG_WAITING, False, None
    if len(bound) >= pods:
        reason, holds = Reasons.GANG_PLACED, True
    if found.backend.reports and state.placed is None and bound:
        wait = _left(bound, IGNORED_SECONDS, draft.exact)
        if wait is None:
            reason, holds = Reasons.GANG_IGNORED, False
    elif not bound and len(live) >= found.gang.least and not any(one.judged for one in live):
        wait = _left(live, UNSEEN_SECONDS, draft.exact)
        if wait is None:
            reason = Reasons.SCHEDULER_MISSING
    why = state.message or next((one.unschedulable for one in live if one.unschedulable), "")
    message = reason.format(
        **facts,
        count=pods if holds else found.gang.least,
        why=why or f"{len(live)} of {pods} pods exist",
        scheduler=_scheduler(draft.observed.job, found.backend),
        pod=live[0].name if live else "",
        seconds=round(UNSEEN_SECONDS),
    )
    draft.condition(ConditionType.GANG_SCHEDULED, holds, reason, message)
    return wait


def _left(pods: Sequence[PodView], seconds: float, now: datetime) -> float | None:
    """Return the seconds until the youngest of the pods is `seconds` old; None if it is."""
    youngest = max(one.started or one.created for one in pods)
    left = youngest + seconds - now.timestamp()
    return min(left, seconds) if left > 0 else None


def _backend(observed: Observed) -> tuple[Backend | None, Violation | None]:
    """Return the backend for a job without pods, or the reason why there is none although the job wants
    one.
    """
    job = observed.job
    wanted = job.spec.placement.gang
    if wanted is GangBackend.NONE or _least(job) < 2:
        return None, None
    split = _split(job)
    if wanted is GangBackend.AUTO:
        fitting = (one for one in BACKENDS if one.version(observed.served) and _fits(job, one))
        return (None if split else next(fitting, None)), None
    backend = _BY_NAME[wanted]
    if split:
        return None, Violation(Reasons.GANG_SPLIT, Reasons.GANG_SPLIT.format(backend=wanted.value, **split))
    if backend.version(observed.served) is None:
        reason = Reasons.GANG_MISSING
        facts = {"backend": wanted.value, "api": backend.api, "advice": backend.advice}
        return None, Violation(reason, reason.format(**facts))
    return backend, None


def _fits(job: TrainingJob, backend: Backend) -> bool:
    """Return True if `Auto` may choose the backend for the scheduler that the templates name. A scheduler
    that Convoy does not know has its own gangs, or none.
    """
    named = _spec_of(_members(job)[0]).get("schedulerName") or ""
    return named in ("", backend.scheduler or "default-scheduler")


def _split(job: TrainingJob) -> dict[str, str]:
    """Return the field in which Member roles differ although a gang needs one value, and its values; empty if
    there is none.
    """
    for field in ("priorityClassName", "schedulerName"):
        values = {role.name: str(_spec_of(role).get(field) or "") for role in _members(job)}
        if len(set(values.values())) > 1:
            shown = ", ".join(f"{name}: {value or 'none'}" for name, value in values.items())
            return {"field": f"template.spec.{field}", "values": shown}
    return {}


def _members(job: TrainingJob) -> list[Role]:
    return [role for role in job.spec.roles if not role.independent]


def _spec_of(role: Role) -> Mapping[str, Any]:
    return role.template.spec.to_dict() if role.template else {}


def _least(job: TrainingJob) -> int:
    return sum(role.min_replicas or role.replicas for role in _members(job))


def _gang(job: TrainingJob, backend: Backend, name: str) -> Gang:
    metadata, placement, members = job.metadata, job.spec.placement, _members(job)
    least = {role.name: role.min_replicas or role.replicas for role in members}
    requests: Counter[str] = Counter()
    for role in members:
        requests.update({one: n * least[role.name] for one, n in pod_requests(_spec_of(role)).items()})
    packed = placement.pack is Pack.REQUIRED and placement.topology_keys
    return Gang(
        name=name,
        owner=owner_reference(KIND.api_version, KIND.name, metadata.name, metadata.uid),
        least=sum(least.values()),
        least_by_role=least,
        requests=dict(requests),
        elastic=any(role.replicas > least[role.name] for role in members),
        priority_class=str(_spec_of(members[0]).get("priorityClassName") or ""),
        topology_key=placement.topology_keys[0] if packed else "",
    )


def _group_name(job: TrainingJob, status: TrainingJobStatus, backend: GangBackend) -> str:
    """Return the name of the PodGroup of this start. It differs from that of every start with other pods."""
    gang = _gang(job, _BY_NAME[backend], "")
    facts = [
        job.metadata.uid,
        status.incarnation,
        gang.least_by_role,
        gang.elastic,
        gang.priority_class,
        gang.topology_key,
    ]
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:6]
    return f"{job.metadata.name}-{digest}"


def _object(observed: Observed, found: GangGroup) -> Mapping[str, Any] | None:
    return next((one.raw for one in observed.gang_objects if one.name == found.gang.name), None)


def _scheduler(job: TrainingJob, backend: Backend) -> str:
    return str(_spec_of(_members(job)[0]).get("schedulerName") or backend.scheduler or "default-scheduler")
