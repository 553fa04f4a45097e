"""A job that should run: its pods exist, its incarnation forms, its faults are answered, its end is seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from convoy_controllers.plan import Command, DeletePod, Plan, PodView
from convoy_controllers.trainingjob import budget, ending, formation, recovering, waiting
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.pods import pod as pod_body
from convoy_controllers.trainingjob.status import Draft, is_up
from convoy_controllers.trainingjob.validity import violation
from convoy_crds.layout import Slot, slots, world_size
from convoy_crds.terms import ANNOTATION_INTENT, ConditionType, Reasons
from convoy_crds.trainingjob import Phase


def plan(observed: Observed, now: datetime) -> Plan:
    """One pass: end, fault, children, formation, words."""
    draft = Draft(observed, now)
    status = draft.status
    layout = slots(observed.job)
    own = {pod.name: pod for pod in observed.pods if pod.owner_uid == observed.job.metadata.uid}
    if status.phase in (Phase.SUSPENDED, Phase.SUSPENDING):
        draft.event(Reasons.RESUMED, Reasons.RESUMED.message)
        draft.drop(ConditionType.SUSPENDED)
        status.phase = None
    status.start_time = status.start_time or draft.now
    draft.fold(status.incarnation)

    if ended := ending.completed(observed, draft, layout, own):
        return ended
    if ended := ending.past_deadline(observed, draft, own):
        return ended
    fault = recovering.fault(observed, layout, own) or recovering.requested(observed)
    status.restart_id = observed.job.spec.recovery.restart_id
    if fault is not None and (ended := recovering.answer(observed, draft, fault, own, now)):
        return ended
    return _form(observed, draft, layout, own, now)


def _children(
    observed: Observed, draft: Draft, layout: tuple[Slot, ...], own: Mapping[str, PodView]
) -> tuple[list[dict[str, Any]], list[DeletePod]]:
    """Pods to create, and pods to delete: broken, superfluous, or not as the spec now asks."""
    names = {pod.name for pod in observed.pods}
    create: list[dict[str, Any]] = []
    delete = [
        DeletePod(pod.name, pod.uid)
        for pod in own.values()
        if not pod.deleting and (pod.phase == "Failed" or pod.name not in {slot.pod for slot in layout})
    ]
    for slot in layout:
        body = pod_body(observed.job, observed.engine, slot)
        existing = own.get(slot.pod)
        if existing is None:
            create += [body] if slot.pod not in names and slot.pod not in observed.create_errors else []
        elif (
            draft.status.phase in (None, Phase.PENDING)
            and not existing.deleting
            and existing.phase != "Failed"
            and existing.annotations.get(ANNOTATION_INTENT)
            != body["metadata"]["annotations"][ANNOTATION_INTENT]
        ):
            delete.append(DeletePod(existing.name, existing.uid))
    return create, delete


def _form(
    observed: Observed, draft: Draft, layout: tuple[Slot, ...], own: Mapping[str, PodView], now: datetime
) -> Plan:
    """Brings the pods up and the incarnation together, and says how far that is."""
    status, recovery = draft.status, observed.job.spec.recovery
    wrong = violation(observed)
    if wrong is not None and (len(own) < len(layout) or not status.membership):
        draft.condition(ConditionType.VALID, False, wrong.reason, wrong.message)
        draft.condition(ConditionType.RUNNING, False, wrong.reason, wrong.message)
        draft.phase(Phase.PENDING, wrong.reason, wrong.message)
        status.pending_since = None
        deletions = tuple(DeletePod(pod.name, pod.uid) for pod in own.values() if not pod.deleting)
        return Plan(
            status=draft.stored(),
            delete=deletions,
            events=tuple(draft.events),
            requeue_after=_deadline(observed, draft),
        )
    draft.condition(ConditionType.VALID, True, Reasons.ACCEPTED, Reasons.ACCEPTED.message)

    create, delete = _children(observed, draft, layout, own) if wrong is None else ([], [])
    waits = [_deadline(observed, draft)]
    if len([pod for pod in own.values() if pod.node]) < len(layout):
        if given_back := _schedule(draft, layout, own, recovery.schedule_seconds, waits):
            return replace(given_back, requeue_after=_earliest(waits))
    else:
        status.pending_since = None
        draft.condition(
            ConditionType.SCHEDULED,
            True,
            Reasons.ALL_SCHEDULED,
            Reasons.ALL_SCHEDULED.format(desired=len(layout)),
        )

    commands: tuple[Command, ...] = ()
    status_first = status.incarnation != observed.job.status.incarnation
    if not status.membership and not create and not delete and formation.whole(layout, own, observed.slots):
        earliest = budget.earliest_formation(status.restarts)
        if earliest is not None and now < earliest and status.phase is Phase.RESTARTING:
            waits.append((earliest - now).total_seconds())
        else:
            formation.form(status, observed, [own[slot.pod].uid for slot in layout])
            status_first = True
    if status.membership:
        commands = formation.commands(observed, own, status.incarnation) if wrong is None else ()
        waits.append(5.0 if commands else None)
        _say_formed(observed, draft, layout, own)
    elif status.phase is not Phase.RESTARTING:
        found = waiting.why(observed, layout, own, observed.slots)
        draft.phase(Phase.PENDING, found.reason, found.message)
        draft.condition(ConditionType.RUNNING, False, found.reason, found.message)
    else:
        found = waiting.why(observed, layout, own, observed.slots)
        draft.condition(ConditionType.RUNNING, False, found.reason, found.message)
    return Plan(
        status=draft.stored(),
        status_first=status_first,
        create=tuple(create),
        delete=tuple(delete),
        events=tuple(draft.events),
        commands=commands,
        requeue_after=_earliest(waits),
    )


def _schedule(
    draft: Draft, layout: tuple[Slot, ...], own: Mapping[str, PodView], limit: int, waits: list[float | None]
) -> Plan | None:
    """Gives the pods back when they were not all placed in time: a part of a gang only blocks others."""
    status = draft.status
    status.pending_since = status.pending_since or draft.now
    found = waiting.why(draft.observed, layout, own, draft.observed.slots)
    draft.condition(ConditionType.SCHEDULED, False, found.reason, found.message)
    left = (status.pending_since + timedelta(seconds=limit) - draft.now).total_seconds()
    if left > 0:
        waits.append(left)
        return None
    status.pending_since = None
    formation.disband(status)
    message = Reasons.SCHEDULE_DEADLINE.format(seconds=limit)
    draft.phase(Phase.PENDING, Reasons.SCHEDULE_DEADLINE, message)
    waits.append(min(limit, 60))
    return Plan(
        status=draft.stored(),
        delete=tuple(DeletePod(pod.name, pod.uid) for pod in own.values() if not pod.deleting),
        events=tuple(draft.events),
    )


def _say_formed(
    observed: Observed, draft: Draft, layout: tuple[Slot, ...], own: Mapping[str, PodView]
) -> None:
    """Starting until every rank is up, Running from then on."""
    status = draft.status
    facts = {"incarnation": status.incarnation, "world": world_size(observed.job)}
    up = all(
        (pod := own.get(slot.pod)) is not None
        and (view := observed.slots.get(pod.uid)) is not None
        and view.incarnation == status.incarnation
        and is_up(view.ranks)
        for slot in layout
    )
    if up:
        message = Reasons.TRAINING.format(**facts)
        draft.phase(Phase.RUNNING, Reasons.TRAINING, message)
        draft.condition(ConditionType.RUNNING, True, Reasons.TRAINING, message)
        draft.drop(ConditionType.RESTARTING)
    elif status.phase is not Phase.RUNNING:
        message = Reasons.FORMING.format(**facts)
        if status.phase is Phase.RESTARTING:
            draft.condition(ConditionType.RUNNING, False, Reasons.FORMING, message)
        else:
            draft.phase(Phase.STARTING, Reasons.FORMING, message)
            draft.condition(ConditionType.RUNNING, False, Reasons.FORMING, message)


def _deadline(observed: Observed, draft: Draft) -> float | None:
    limit, start = observed.job.spec.active_deadline_seconds, draft.status.start_time
    if limit is None or start is None:
        return None
    return max(0.1, (start + timedelta(seconds=limit) - draft.now).total_seconds())


def _earliest(waits: list[float | None]) -> float | None:
    return min((wait for wait in waits if wait is not None), default=None)
