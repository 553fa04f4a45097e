"""A job that should run: its pods exist, its incarnation forms, its faults are answered, its end is seen."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from convoy_controllers.plan import Command, DeletePod, Plan, PodView
from convoy_controllers.trainingjob import budget, ending, formation, recovering, waiting
from convoy_controllers.trainingjob.faults import ended, failed
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.pods import pod as pod_body
from convoy_controllers.trainingjob.status import Draft, is_up
from convoy_controllers.trainingjob.validity import Violation, violation
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
    """Pods to create, and pods to delete: ended, superfluous, or (while forming) not as the spec now asks."""
    forming = not draft.status.membership
    names = {pod.name for pod in observed.pods}
    create: list[dict[str, Any]] = []

    def over(pod: PodView) -> bool:
        # Of an incarnation that runs, a pod that ended well still stands for its ranks.
        return ended(pod) if forming else failed(pod)

    delete = [
        DeletePod(pod.name, pod.uid)
        for pod in own.values()
        if not pod.deleting and (over(pod) or pod.name not in {slot.pod for slot in layout})
    ]
    for slot in layout:
        body = pod_body(observed.job, observed.engine, slot)
        existing = own.get(slot.pod)
        if existing is None:
            create += [body] if slot.pod not in names and slot.pod not in observed.create_errors else []
        elif (
            forming
            and not existing.deleting
            and not over(existing)
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

    waits = [_deadline(observed, draft)]
    if status.pending_since is not None and now < status.pending_since and not own:
        waits.append((status.pending_since - now).total_seconds())
        return Plan(status=draft.stored(), events=tuple(draft.events), requeue_after=_earliest(waits))
    create, delete = _children(observed, draft, layout, own) if wrong is None else ([], [])
    whole = formation.whole(layout, own, observed.slots)
    if status.membership or whole:
        status.pending_since = None
    elif given_back := _hurry(draft, layout, own, recovery.schedule_seconds, waits):
        return replace(given_back, requeue_after=_earliest(waits))
    if all((pod := own.get(slot.pod)) is not None and pod.node for slot in layout):
        message = Reasons.ALL_SCHEDULED.format(desired=len(layout))
        draft.condition(ConditionType.SCHEDULED, True, Reasons.ALL_SCHEDULED, message)
    else:
        found = waiting.why(observed, layout, own, observed.slots)
        draft.condition(ConditionType.SCHEDULED, False, found.reason, found.message)

    commands: tuple[Command, ...] = ()
    stored = observed.job.status
    status_first = (status.incarnation, status.restarts) != (stored.incarnation, stored.restarts)
    paused_until: datetime | None = None
    if not status.membership and not create and not delete and whole:
        earliest = budget.earliest_formation(status.restarts)
        if earliest is not None and now < earliest and status.phase is Phase.RESTARTING:
            paused_until = earliest
            waits.append((earliest - now).total_seconds())
        else:
            formation.form(status, observed, [own[slot.pod].uid for slot in layout])
            status_first = True
    if status.membership:
        commands = formation.commands(observed, own, status.incarnation) if wrong is None else ()
        waits.append(5.0 if commands else None)
        _say_formed(observed, draft, layout, own)
    else:
        found = _back_off(draft, paused_until) or waiting.why(observed, layout, own, observed.slots)
        if status.phase is not Phase.RESTARTING:
            draft.phase(Phase.PENDING, found.reason, found.message)
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


def _back_off(draft: Draft, until: datetime | None) -> Violation | None:
    """The words for a job that is whole but pauses before it forms again."""
    restarts = draft.status.restarts
    if until is None or restarts.last is None:
        return None
    reason = Reasons.BACK_OFF
    facts = {"at": f"{until:%H:%M:%SZ}", "count": restarts.in_window, "why": restarts.last.message}
    return Violation(reason, reason.format(incarnation=draft.status.incarnation, **facts))


def _hurry(
    draft: Draft, layout: tuple[Slot, ...], own: Mapping[str, PodView], limit: int, waits: list[float | None]
) -> Plan | None:
    """Gives the pods back when they were not all up in time: a part of a gang only blocks others.

    Then holds back for a share of the limit that differs from job to job, or two jobs that each hold half of
    what both need would meet again and again.
    """
    status = draft.status
    status.pending_since = status.pending_since or draft.now
    left = (status.pending_since + timedelta(seconds=limit) - draft.now).total_seconds()
    if left > 0:
        waits.append(left)
        return None
    share = int(hashlib.sha256(draft.observed.job.metadata.uid.encode()).hexdigest()[:4], 16) / 0xFFFF
    pause = 1 + round(share * min(limit, 120))
    status.pending_since = draft.now + timedelta(seconds=pause)
    waits.append(pause)
    found = waiting.why(draft.observed, layout, own, draft.observed.slots)
    message = Reasons.SCHEDULE_DEADLINE.format(seconds=limit, pause=pause, why=found.message)
    draft.phase(Phase.PENDING, Reasons.SCHEDULE_DEADLINE, message)
    draft.condition(ConditionType.RUNNING, False, Reasons.SCHEDULE_DEADLINE, message)
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
