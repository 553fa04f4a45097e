"""Plans a job that should run: create its pods, form its incarnation, handle its faults, notice its end."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from convoy_controllers.children import Check, Create, delete_pod
from convoy_controllers.commands import Command
from convoy_controllers.placement.gang_state import live
from convoy_controllers.placement.gangs.backend import GangGroup
from convoy_controllers.plan import Plan
from convoy_controllers.resources import NETWORK_POLICIES, PODS
from convoy_controllers.trainingjob import (
    checkpointing,
    claiming,
    digests,
    dropped_metrics,
    ending,
    forecasting,
    formation,
    gang,
    nodes,
    numbering,
    queueing,
    recovering,
    spot,
    stragglers,
    templates,
    tracing,
)
from convoy_controllers.trainingjob.creation import Slots, wanted_changes
from convoy_controllers.trainingjob.independent.plan import extend
from convoy_controllers.trainingjob.independent.scope import split
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.pod_changes import PodChanges
from convoy_controllers.trainingjob.status import Draft, is_up
from convoy_controllers.trainingjob.validity import violation
from convoy_controllers.views import PodView
from convoy_controllers.workers import waiting
from convoy_controllers.workers.blame import root_cause_wait
from convoy_controllers.workers.network import policies
from convoy_controllers.workers.violation import Violation
from convoy_crds.layout import Slot, present, slots, world_size
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob import KIND
from convoy_crds.trainingjob_status import Phase, TrainingJobStatus

MAX_CAUSE_CHARS = 1024
"""Maximum number of characters to store of the reason why the pods could not be scheduled."""


def plan(observed: Observed, now: datetime) -> Plan:
    """Plan one reconcile of an active job: first its process group, then its Independent pods."""
    parts = split(observed)
    draft = Draft(parts.members, now)
    return extend(_plan_group(parts.members, draft, now), parts, draft, now)


def _plan_group(observed: Observed, draft: Draft, now: datetime) -> Plan:
    """Plan the process group: check its end, then faults, pods, formation and conditions."""
    status = draft.status
    layout = slots(observed.job)
    own = {pod.name: pod for pod in observed.pods if pod.owner_uid == observed.job.metadata.uid}
    if status.phase in (Phase.SUSPENDED, Phase.SUSPENDING):
        draft.event(Reasons.RESUMED, Reasons.RESUMED.message)
        draft.drop(ConditionType.SUSPENDED)
        status.phase = None
    if status.phase in (None, Phase.PENDING):
        # A user may change the layout of a pending job. After that, only an update that suspends the job may
        # change the layout. A stored digest that differs from the digest of the spec therefore shows that the
        # job was suspended.
        status.internal.layout = digests.layout_digest(observed.job)
    status.start_time = status.start_time or draft.now
    draft.merge_reports(status.incarnation)
    checkpointing.set_condition(draft)
    stragglers.set_condition(draft)
    dropped_metrics.set_condition(draft)
    queueing.report(draft)
    trace_wait = tracing.reconcile(draft)

    formed = present(observed.job) if status.formed else layout
    if ended := ending.completed(observed, draft, formed, own):
        return ended
    if ended := ending.past_deadline(observed, draft, own):
        return ended
    wrong, lost = violation(observed), nodes.lost(observed)
    returned = _returned_pods(observed, layout, formed, own, lost)
    fault = (
        recovering.fault(observed, formed, own, lost)
        # A running incarnation goes on even if the new spec is invalid. Until the spec is valid, no requested
        # restart happens and no pods join again.
        or recovering.overtaken(observed)
        or (recovering.requested(observed) if wrong is None else None)
        or recovering.regrowth(observed, draft, layout, returned if wrong is None else 0)
    )
    report_due = recovering.cause_report_due(observed, formed, own)
    if fault is not None and (wait := root_cause_wait(fault, report_due, now)):
        return Plan(status=draft.stored(), events=tuple(draft.events), requeue_after=wait)
    if wrong is None or not status.formed:
        status.internal.restart_id = observed.job.spec.recovery.restart_id
    if fault is not None and (ended := recovering.handle_fault(observed, draft, fault, own, now)):
        return ended
    made = _form(observed, draft, layout, own, lost, now)
    made = replace(made, requeue_after=_earliest([made.requeue_after, trace_wait]))
    return replace(made, fault_at=fault.at) if fault is not None else made


def _returned_pods(
    observed: Observed,
    layout: tuple[Slot, ...],
    formed: tuple[Slot, ...],
    own: Mapping[str, PodView],
    lost: Mapping[str, str],
) -> int:
    """Return the number of pods that the incarnation lacks and that are ready to join it."""
    if len(formed) == len(layout):
        return 0
    names = {slot.pod for slot in formed}
    absent = [slot for slot in layout if slot.pod not in names]
    return len(formation.ready(observed, absent, own, lost))


def _form(
    observed: Observed,
    draft: Draft,
    layout: tuple[Slot, ...],
    own: Mapping[str, PodView],
    lost: Mapping[str, str],
    now: datetime,
) -> Plan:
    """Create missing pods, form the incarnation, and set the conditions that show its progress."""
    status, recovery = draft.status, observed.job.spec.recovery
    wrong = violation(observed)
    if wrong is not None and not status.formed:
        return _refuse(observed, draft, wrong, own)
    _set_valid(observed, draft, wrong)
    spot.report(draft)

    waits = [_deadline(observed, draft)]
    if status.internal.pending.since is not None and now < status.internal.pending.since:
        waits.append((status.internal.pending.since - now).total_seconds())
        return Plan(status=draft.stored(), events=tuple(draft.events), requeue_after=_earliest(waits))
    pause = _back_off_seconds(status, now)
    if wrong is None:
        wanted, group = wanted_changes(observed, draft, Slots(layout, own, lost, pause), now)
    else:
        wanted, group = PodChanges(), gang.group(observed, status)
    waits += wanted.waits
    up = formation.ready(observed, layout, own, lost)
    # Under Strict fencing, no incarnation forms while a worker of an earlier incarnation may still run.
    held = status.formed or wanted.fencing
    chosen = () if held else formation.participants(observed, status, layout, up, own, now)
    blocked = pause or wanted.fencing or (wanted.held and not live(own.values()))
    if status.formed or chosen or blocked or gang.waits_freely(observed, draft, own):
        # Time during which Convoy itself blocks the start does not count against scheduleSeconds. The count
        # therefore starts again at 0 after that time. Pods that wait for a held one may never start.
        status.internal.pending.since = None
    elif given_back := _enforce_schedule_deadline(draft, layout, own, recovery.schedule_seconds, waits):
        return replace(given_back, requeue_after=_earliest(waits))
    found = wanted.fencing or wanted.held or waiting.why(observed, layout, own, observed.slots)
    _set_scheduled(draft, layout, own, found)
    inspected, later = (None, None) if held or pause else waiting.inspect(observed, layout, own, now)
    waits.append(later)

    commands: tuple[Command, ...] = ()
    stored = observed.job.status
    status_first = (status.incarnation, status.restarts) != (stored.incarnation, stored.restarts)
    leaving = {deleted.name for deleted in wanted.delete}
    if not pause and chosen and not leaving & {slot.pod for slot in chosen}:
        formation.form(status, observed, layout, chosen, own)
        status.internal.pending.cause = ""
        inspected = None
        stragglers.clear(draft)
        tracing.rearm(draft)
        status_first = True
    if status.formed:
        commands = formation.commands(observed, status, own) if wrong is None else ()
        waits.append(5.0 if commands else None)
        _set_running(observed, draft, own)
    else:
        if not (wanted.fencing or wanted.held):
            found = _back_off(status) if pause else waiting.retried(found, status.internal.pending.cause)
        if status.phase is Phase.RESTARTING:
            waits += _shrink_wait(status, up, layout, now)
        else:
            draft.phase(Phase.PENDING, found.reason, found.message)
        draft.condition(ConditionType.RUNNING, False, found.reason, found.message)
    waits.append(_report_placement(draft, group, own, layout))
    return Plan(
        status=draft.stored(),
        status_first=status_first,
        children=(
            *wanted.delete,
            *gang.apply(observed, group),
            *policies(observed.network, KIND, observed.job.metadata),
            *(Check(PODS, body) for body in wanted.check),
            *_creations(observed, wanted),
        ),
        prune=(NETWORK_POLICIES, *gang.written(observed)),
        events=tuple(draft.events),
        commands=commands,
        inspect=inspected,
        simulate=tuple(draft.simulate),
        memory=draft.compared or None,
        requeue_after=_earliest(waits),
    )


def _report_placement(
    draft: Draft, group: GangGroup | None, own: Mapping[str, PodView], layout: Sequence[Slot]
) -> float | None:
    """Set the status of the placement. Return the seconds until it may change without an event, if any."""
    numbering.show(draft.observed, draft.status, own)
    forecasting.show(draft, own)
    return gang.report(draft, group, own, layout)


def _set_valid(observed: Observed, draft: Draft, wrong: Violation | None) -> None:
    """Set the Valid condition. It is False if the spec cannot run, or if it differs from the spec with
    which the incarnation was formed.

    The API server rejects most changes of a running job's spec. Its CEL rule cannot see fields without a
    schema, so it misses, for example, a renamed field of `params`.
    """
    changed = draft.status.formed and draft.status.internal.incarnation.spec != digests.digest(observed.job)
    if wrong is None and changed:
        reason = Reasons.SPEC_CHANGED
        wrong = Violation(reason, reason.format(fields="spec.engine, roles or checkpoint"))
    if wrong is None:
        draft.condition(ConditionType.VALID, True, Reasons.ACCEPTED, Reasons.ACCEPTED.message)
    else:
        draft.condition(ConditionType.VALID, False, wrong.reason, wrong.message)


def _set_scheduled(
    draft: Draft, layout: tuple[Slot, ...], own: Mapping[str, PodView], found: Violation
) -> None:
    """Set the Scheduled condition. It is False, with the reason `found`, if a pod has no node."""
    if all((pod := own.get(slot.pod)) is not None and pod.node for slot in layout):
        message = Reasons.ALL_SCHEDULED.format(desired=len(layout))
        draft.condition(ConditionType.SCHEDULED, True, Reasons.ALL_SCHEDULED, message)
    else:
        draft.condition(ConditionType.SCHEDULED, False, found.reason, found.message)


def _refuse(observed: Observed, draft: Draft, wrong: Violation, own: Mapping[str, PodView]) -> Plan:
    """Report the violation of the spec, and delete the pods."""
    draft.condition(ConditionType.VALID, False, wrong.reason, wrong.message)
    draft.condition(ConditionType.RUNNING, False, wrong.reason, wrong.message)
    draft.phase(Phase.PENDING, wrong.reason, wrong.message)
    draft.status.internal.pending.since = None
    claiming.release(draft)
    return Plan(
        status=draft.stored(),
        children=tuple(delete_pod(pod.name, pod.uid) for pod in own.values() if not pod.deleting),
        events=tuple(draft.events),
        requeue_after=_deadline(observed, draft),
    )


def _shrink_wait(
    status: TrainingJobStatus, up: tuple[Slot, ...], layout: tuple[Slot, ...], now: datetime
) -> list[float | None]:
    """Return the seconds for which an elastic job still waits for missing pods after a fault, as a list
    with one entry. The list is empty if the job does not wait.
    """
    until = formation.shrink_deadline(status)
    if until is None or len(up) == len(layout):
        return []
    left = (until - now).total_seconds()
    return [left] if left > 0 else []


def _back_off_seconds(status: TrainingJobStatus, now: datetime) -> float:
    """Return the remaining seconds of restart back-off, before the job may form again; 0 if there is no
    back-off.
    """
    earliest = status.internal.restarts.not_before
    if status.formed or earliest is None or status.phase is not Phase.RESTARTING:
        return 0.0
    return max(0.0, (earliest - now).total_seconds())


def _back_off(status: TrainingJobStatus) -> Violation:
    """Return the reason and message for a job in restart back-off."""
    restarts, reason = status.restarts, Reasons.BACK_OFF
    why = restarts.last.message if restarts.last else ""
    at = f"{status.internal.restarts.not_before:%H:%M:%SZ}"
    return Violation(
        reason, reason.format(incarnation=status.incarnation, at=at, count=restarts.total, why=why)
    )


def _enforce_schedule_deadline(
    draft: Draft, layout: tuple[Slot, ...], own: Mapping[str, PodView], limit: int, waits: list[float | None]
) -> Plan | None:
    """Return a plan that deletes all pods if some of them are not up after `limit` seconds; None before
    that. Nodes that an incomplete job holds would only block other jobs.

    The next attempt starts after a pause of random length, which differs from job to job and from attempt to
    attempt. With equal pauses, two jobs that compete for the same nodes would block each other again at every
    attempt.
    """
    status = draft.status
    status.internal.pending.since = status.internal.pending.since or draft.now
    left = (status.internal.pending.since + timedelta(seconds=limit) - draft.now).total_seconds()
    if left > 0:
        waits.append(left)
        return None
    attempt = f"{draft.observed.job.metadata.uid} {status.internal.pending.since.isoformat()}"
    share = int(hashlib.sha256(attempt.encode()).hexdigest()[:4], 16) / 0xFFFF
    pause = 1 + round(share * min(limit, 120))
    status.internal.pending.since = draft.now + timedelta(seconds=pause)
    waits.append(pause)
    found = waiting.why(draft.observed, layout, own, draft.observed.slots)
    # If this attempt was too short to show a cause, the cause of the earlier attempt is kept.
    known = status.internal.pending.cause if not found.reason.warning else ""
    status.internal.pending.cause = known or found.message[:MAX_CAUSE_CHARS]
    claiming.release(draft)
    until = f"{status.internal.pending.since:%H:%M:%SZ}"
    message = Reasons.SCHEDULE_DEADLINE.format(seconds=limit, until=until, why=status.internal.pending.cause)
    draft.phase(Phase.PENDING, Reasons.SCHEDULE_DEADLINE, message)
    draft.condition(ConditionType.RUNNING, False, Reasons.SCHEDULE_DEADLINE, message)
    return Plan(
        status=draft.stored(),
        children=tuple(delete_pod(pod.name, pod.uid) for pod in own.values() if not pod.deleting),
        events=tuple(draft.events),
    )


def _set_running(observed: Observed, draft: Draft, own: Mapping[str, PodView]) -> None:
    """Set the phase to Starting until every rank is up, and then to Running."""
    status = draft.status
    layout = slots(observed.job)
    formed = present(observed.job.model_copy(update={"status": status}))
    facts = {"incarnation": status.incarnation, "world": world_size(formed)}
    up = all(
        (pod := own.get(slot.pod)) is not None
        and (view := observed.slots.get(pod.uid)) is not None
        and view.incarnation == status.incarnation
        and is_up(view.ranks)
        for slot in formed
    )
    if up:
        names = {slot.pod for slot in formed}
        missing = [slot.pod for slot in layout if slot.pod not in names]
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        absent = ", ".join(missing[:5]) + more
        reason = Reasons.SHRUNK if absent else Reasons.TRAINING
        message = reason.format(absent=absent, **facts)
        draft.phase(Phase.RUNNING, reason, message)
        draft.condition(ConditionType.RUNNING, True, reason, message)
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


def _creations(observed: Observed, wanted: PodChanges) -> list[Create]:
    untried = {body["metadata"]["name"] for body in templates.untried(observed.job, wanted.create)}
    return [Create(PODS, body, dry_run=body["metadata"]["name"] in untried) for body in wanted.create]
