"""Chooses the gang scheduler of a job, and reports what it does.

The choice is stored in the status when the first pods are created. Pods that replace others join the PodGroup
of those that stay. After a start without any pod, the job gets another PodGroup: a scheduler counts pods that
still end, so that old pods would let the gang start in part.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from convoy_controllers.children import Apply, owner_reference
from convoy_controllers.placement import gang_state
from convoy_controllers.placement.gang_choice import (
    BY_NAME,
    GangRole,
    GangSpec,
    GroupName,
    choose,
    gang,
    group_name,
    missing_api,
    queue_of,
)
from convoy_controllers.placement.gangs.backend import GangGroup
from convoy_controllers.placement.placing import restricts
from convoy_controllers.resources import Resource
from convoy_controllers.trainingjob import queueing
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.views import PodView
from convoy_controllers.workers.violation import Violation
from convoy_crds.layout import Slot, present
from convoy_crds.placement import GangBackend, PlacementStatus
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob import KIND, TrainingJob
from convoy_crds.trainingjob_status import TrainingJobStatus


def select(observed: Observed, status: TrainingJobStatus, own: Collection[PodView]) -> Violation | None:
    """Choose the backend and the PodGroup for a start without any pod, and store them in the status. A job
    that has not formed also gets another PodGroup if its layout has changed; its pods are then replaced.

    Return the reason why the job must not create pods; None if it may.
    """
    placed, name = status.placement or PlacementStatus(), _name(observed.job, status)
    if gang_state.live(own):
        known = BY_NAME.get(placed.gang) if placed.gang and placed.group else None
        if known is None:
            return None
        if status.formed or name.has_shape_of(placed.group):
            return missing_api(known, observed.served)
    backend, wrong = choose(_spec(observed.job), observed.served)
    if wrong is not None:
        return wrong
    used = gang_state.in_use(gang_state.find(observed.gang_objects, placed.group), own)
    placed.gang = backend.name if backend else GangBackend.NONE
    placed.group = name.after(placed.group, used=used) if backend else ""
    status.placement = placed
    return None


def group(observed: Observed, status: TrainingJobStatus) -> GangGroup | None:
    """Return the job's gang with its backend, according to the status; None without a gang scheduler."""
    placed, metadata = status.placement, observed.job.metadata
    backend = BY_NAME.get(placed.gang) if placed is not None and placed.gang is not None else None
    if placed is None or not placed.group or backend is None:
        return None
    owner = owner_reference(KIND.api_version, KIND.name, metadata.name, metadata.uid)
    stored = gang_state.find(observed.gang_objects, placed.group)
    wanted = gang_state.with_kept_queue(_spec(observed.job), backend, stored)
    return GangGroup(backend, gang(wanted, placed.group, owner))


def apply(observed: Observed, found: GangGroup | None) -> list[Apply]:
    """Return the PodGroup to apply; nothing without a gang scheduler, or while its API is not served."""
    return gang_state.apply(found, observed.served) if found is not None else []


def written(observed: Observed) -> tuple[Resource, ...]:
    """Return the resources whose objects the job owns completely."""
    return gang_state.written(observed.served)


def refused(observed: Observed, found: GangGroup | None) -> Violation | None:
    """Return the API server's reason for refusing the PodGroup; None if it has not refused it."""
    return gang_state.refused(found, observed.create_errors) if found is not None else None


def exists(observed: Observed, found: GangGroup | None) -> bool:
    """Return True if the PodGroup exists, or if the job needs none. Pods are created after their PodGroup."""
    return found is None or _object(observed, found) is not None


def follows_scheduler(observed: Observed, status: TrainingJobStatus) -> bool:
    """Return True if the scheduler itself chooses the domain of the job's pods."""
    found = group(observed, status)
    return found is not None and gang_state.chooses_domain(found, _object(observed, found))


def waits_freely(observed: Observed, draft: Draft, own: Mapping[str, PodView]) -> bool:
    """Return True if the job's pods may wait for their scheduler without a deadline: they hold no nodes, and
    other pods would have no better chance. They would if Convoy restricts these to some domains, or if jobs
    of lower priority could give up pods, which is decided before pods are created.
    """
    found = group(observed, draft.status)
    if found is None or observed.priority > 0:
        return False
    if not gang_state.waits_freely(found, gang_state.live(own.values())):
        return False
    if follows_scheduler(observed, draft.status) or queueing.chooses_places(observed):
        return True
    first = not draft.status.internal.pending.cause
    return not restricts(observed.job.spec.placement, first_attempt=first)


def report(
    draft: Draft, found: GangGroup | None, own: Mapping[str, PodView], layout: Sequence[Slot]
) -> float | None:
    """Set the condition GangScheduled. Return the seconds until it may change without an event; None if
    there is no such time. `layout`: all slots of the job.
    """
    job, status = draft.observed.job, draft.status
    if found is None:
        draft.drop(ConditionType.GANG_SCHEDULED)
        return None
    pods = len(present(job.model_copy(update={"status": status}))) if status.formed else len(layout)
    state = gang_state.report(
        found,
        _object(draft.observed, found),
        gang_state.live(own.values()),
        pods,
        scheduler=_spec(job).scheduler(found.backend),
        now=draft.exact,
    )
    draft.condition(ConditionType.GANG_SCHEDULED, state.holds, state.reason, state.message)
    return state.wait_seconds


def _spec(job: TrainingJob) -> GangSpec:
    """Return the pods of the job's Member roles. They start together."""
    members = [role for role in job.spec.roles if not role.independent]
    return GangSpec(
        job.spec.placement,
        [
            GangRole(
                role.name,
                role.template.spec.to_dict() if role.template else {},
                role.least,
                role.replicas,
            )
            for role in members
        ],
        queue_of(job.metadata.annotations),
    )


def _name(job: TrainingJob, status: TrainingJobStatus) -> GroupName:
    """Return the name of the PodGroup of a start now."""
    return group_name(_spec(job), job.metadata.name, "", [job.metadata.uid, status.incarnation])


def _object(observed: Observed, found: GangGroup) -> Mapping[str, Any] | None:
    return gang_state.find(observed.gang_objects, found.gang.name)
