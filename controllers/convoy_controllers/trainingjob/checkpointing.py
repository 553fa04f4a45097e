"""Sets the condition Checkpointing of a job. It is True if the state is saved as the spec asks. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from convoy_controllers.trainingjob import interval, tiers
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.trainingjob.tiers import Effective
from convoy_controllers.trainingjob.validity import store_not_allowed, unknown_store
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob_status import Progress, SavedCheckpoint, TrainingJobStatus

GRAVEST_FIRST = (
    Reasons.STORE_UNAVAILABLE,
    Reasons.MEMORY_YIELDED,
    Reasons.NO_CHECKPOINT_MEMORY,
    Reasons.DEFAULT_NO_ROOM,
    Reasons.CHECKPOINTS_LOST,
    # NOT_COPIED explains why saves are overdue, so it comes before OVERDUE.
    Reasons.NOT_COPIED,
    Reasons.OVERDUE,
    Reasons.UNKNOWN_STORE,
    Reasons.STORE_NOT_ALLOWED,
    # A store that is not ready explains why a node's upload failed, so it comes before NOT_STORED.
    Reasons.STORE_NOT_READY,
    Reasons.NOT_STORED,
    Reasons.NO_PEER,
    Reasons.PROGRAM_NEVER_SAVES,
    Reasons.NOTHING_SAVED,
    # If only the reasons below apply, the state is saved as the spec asks.
    Reasons.INEXACT_JOURNAL,
    Reasons.SINGLE_DOMAIN,
    Reasons.DEFAULT_NO_COPIES,
    Reasons.DEFAULT_ONE_NODE,
    Reasons.DEFAULT_MEMORY,
    Reasons.SAVING,
)
"""All reasons of the condition, the gravest first. The condition shows the first reason that applies."""
TROUBLES = {
    "NO_MEMORY": Reasons.NO_CHECKPOINT_MEMORY,
    "LOST": Reasons.CHECKPOINTS_LOST,
    "NOT_STORED": Reasons.NOT_STORED,
    "INEXACT": Reasons.INEXACT_JOURNAL,
    "NOT_COPIED": Reasons.NOT_COPIED,
    "NOT_RESTORED": Reasons.STORE_UNAVAILABLE,
    "YIELDED": Reasons.MEMORY_YIELDED,
}
"""Reasons for the problems that agents report, by the names of the problems in hub.proto."""
UNSAVED = (
    Reasons.NO_CHECKPOINT_MEMORY,
    Reasons.DEFAULT_NO_ROOM,
    Reasons.MEMORY_YIELDED,
    Reasons.NOT_COPIED,
    Reasons.OVERDUE,
)
"""Reasons under which further steps are not saved."""
LATE_INTERVALS, LATE_SECONDS, LATE_STEPS = 5, 120.0, 3
"""A save is overdue if all three limits are exceeded: LATE_INTERVALS save intervals since the previous save,
LATE_SECONDS seconds since the save was due, and LATE_STEPS steps since the previous save. The last two limits
allow for very long steps.
"""


ANNOUNCED = (
    Reasons.DEFAULT_MEMORY,
    Reasons.DEFAULT_ONE_NODE,
    Reasons.DEFAULT_NO_COPIES,
    Reasons.DEFAULT_NO_ROOM,
    Reasons.PROGRAM_NEVER_SAVES,
)
"""Reasons about checkpoints by default. Each becomes an Event although it is no warning, because the spec
does not ask for checkpoints.
"""
NEVER_SAVES_STEPS = 3
"""Steps after which a program that has requested no checkpoint counts as one that never saves. A program that
uses Convoy's checkpoints requests one before its first step.
"""


class Finding(NamedTuple):
    """One finding about the job's saves. `holds` is True if the state is saved as the spec asks."""

    holds: bool
    reason: Reason
    message: str


def set_condition(draft: Draft) -> None:
    """Set the condition if an incarnation has formed. A new problem also becomes an Event."""
    found = finding(draft.observed, draft.status)
    if found is None:
        if tiers.of(draft.observed, draft.status).source is None:
            draft.drop(ConditionType.CHECKPOINTING)
        return
    old = next((c for c in draft.status.conditions if c.type == ConditionType.CHECKPOINTING), None)
    told = found.reason.warning or found.reason in ANNOUNCED
    if told and (old is None or old.reason != found.reason.name):
        draft.event(found.reason, found.message)
    draft.condition(ConditionType.CHECKPOINTING, *found)


def finding(observed: Observed, status: TrainingJobStatus) -> Finding | None:
    """Return the gravest finding; None if the job saves no checkpoints, before an incarnation has formed, and
    while the reports of a job with tiers by default decide nothing.
    """
    effective = tiers.of(observed, status)
    if effective.source is None or not status.formed:
        return None
    saving = _saving_by_default if effective.by_default else _saving
    found = [
        *_troubles(observed, status, effective),
        *_store(observed),
        *_overdue(observed, status),
        *saving(observed, status, effective),
    ]
    return min(found, key=lambda one: GRAVEST_FIRST.index(one.reason), default=None)


def _troubles(observed: Observed, status: TrainingJobStatus, effective: Effective) -> Iterator[Finding]:
    """Yield the problems that agents report in this incarnation, in the order of the slots."""
    point = status.saved
    # If the job has no checkpoint, nothing can be lost. If this incarnation has saved one itself, the earlier
    # loss no longer matters. In both cases a report of lost checkpoints is ignored.
    unharmed = point is None or point.incarnation == status.incarnation
    for view in observed.slots.values():
        if view.incarnation != status.incarnation:
            continue
        for kind, why in view.troubles:
            reason = TROUBLES[kind]
            if effective.by_default and reason == Reasons.NO_CHECKPOINT_MEMORY:
                reason = Reasons.DEFAULT_NO_ROOM
            if reason == Reasons.CHECKPOINTS_LOST and unharmed:
                continue
            message = reason.format(
                node=view.node,
                why=why,
                incarnation=status.incarnation,
                name=observed.job.spec.checkpoint.tiers.store,
            )
            yield Finding(reason == Reasons.INEXACT_JOURNAL, reason, message)


def overdue(point: SavedCheckpoint, progress: Progress, began: float, interval_seconds: float) -> bool:
    """Return True if steps go on but the saves that the interval asks for are missing.

    `point` is the newest checkpoint. `began` is the Unix time at which the first step of the incarnation
    ended. A checkpoint of an earlier incarnation counts as saved at `began`. Only time up to the newest
    step counts.
    """
    late = _late(progress, max(point.time.timestamp(), began), interval_seconds)
    return late and progress.step - point.step >= LATE_STEPS


def _late(progress: Progress, since: float, interval_seconds: float) -> bool:
    """Return True if the newest step ended so long after `since` (Unix time) that a save is overdue."""
    limit = max(LATE_INTERVALS * interval_seconds, interval_seconds + LATE_SECONDS)
    return progress.time is not None and progress.time.timestamp() - since > limit


def _first_step_time(observed: Observed, status: TrainingJobStatus) -> float:
    """Return the Unix time at which the first step of the incarnation ended; 0 before that."""
    views = observed.slots.values()
    ranks = [rank for view in views if view.incarnation == status.incarnation for rank in view.ranks]
    return min((rank.first_step for rank in ranks if rank.first_step), default=0.0)


def _overdue(observed: Observed, status: TrainingJobStatus) -> Iterator[Finding]:
    """Yield a finding if saves are overdue, whatever the cause."""
    began = _first_step_time(observed, status)
    point, progress = status.saved, status.progress
    if not began or point is None or progress is None:
        return
    if overdue(point, progress, began, interval.seconds(observed.job, status)):
        facts = {"at": f"{point.time:%Y-%m-%dT%H:%M:%SZ}", "step": point.step}
        every = interval.described(observed.job, status)
        yield Finding(False, Reasons.OVERDUE, Reasons.OVERDUE.format(interval=every, **facts))


def _saving(observed: Observed, status: TrainingJobStatus, effective: Effective) -> Iterator[Finding]:
    """Yield the findings about tiers of the spec that do not come from a problem of an agent or a store: a
    missing peer, no save yet, a single failure domain, or no problem at all.
    """
    wanted = observed.job.spec.checkpoint.tiers
    every = interval.described(observed.job, status)
    names = tiers.member_nodes(observed, status)
    if wanted.peer and len(names) == 1:
        yield Finding(False, Reasons.NO_PEER, Reasons.NO_PEER.format(node=names[0]))
    if status.saved is None:
        yield Finding(False, Reasons.NOTHING_SAVED, Reasons.NOTHING_SAVED.format(interval=every))
    facts = {"interval": every, "tiers": ", ".join(wanted.names)}
    if wanted.peer and names:
        key = wanted.peer.domain_key(observed.job.spec.placement.topology_keys)
        known = {name: observed.nodes[name].labels.get(key, "") for name in names if name in observed.nodes}
        if len(set(known.values())) == 1:
            where = next(iter(known.values())) or "no node has the label"
            reason = Reasons.SINGLE_DOMAIN
            yield Finding(True, reason, reason.format(key=key, where=where, **facts))
    yield Finding(True, Reasons.SAVING, Reasons.SAVING.format(**facts))


def _saving_by_default(
    observed: Observed, status: TrainingJobStatus, effective: Effective
) -> Iterator[Finding]:
    """Yield the findings about tiers by default: a program that never saves, too little memory, or the tiers
    that the job has.
    """
    if never_saves(observed, status):
        reason = Reasons.PROGRAM_NEVER_SAVES
        yield Finding(False, reason, reason.message)
    began, progress = _first_step_time(observed, status), status.progress
    if began and progress is not None and status.saved is None:
        every = interval.described(observed.job, status)
        if _late(progress, began, interval.seconds(observed.job, status)):
            yield Finding(False, Reasons.NOTHING_SAVED, Reasons.NOTHING_SAVED.format(interval=every))
    if _undecided(observed, status):
        return
    if effective.shortfall is not None:
        yield Finding(effective.tiers.any, *effective.shortfall)
        return
    facts = {
        "interval": interval.described(observed.job, status),
        "copies": effective.tiers.peer.copies if effective.tiers.peer else 0,
        "memory": tiers.mebibytes(effective.limit) if effective.limit else "half of the agent's memory",
    }
    yield Finding(True, Reasons.DEFAULT_MEMORY, Reasons.DEFAULT_MEMORY.format(**facts))


def _undecided(observed: Observed, status: TrainingJobStatus) -> bool:
    """Return True if the condition stays as it is until the agents report more about this incarnation.

    Before a rank has requested checkpoints, it is unknown whether the program saves. Before all ranks have
    requested memory, it is unknown whether the memory suffices this time.
    """
    old = next((one.reason for one in status.conditions if one.type == ConditionType.CHECKPOINTING), None)
    views = [view.memory for view in observed.slots.values() if view.incarnation == status.incarnation]
    if not any(one is not None and one.opened for one in views):
        return old is None or old in [reason.name for reason in ANNOUNCED]
    known = tiers.known(observed, status)
    complete = known.nodes and all(node in known.memory and known.memory[node].wanted for node in known.nodes)
    return not complete and old in (Reasons.DEFAULT_NO_COPIES.name, Reasons.DEFAULT_NO_ROOM.name)


def never_saves(observed: Observed, status: TrainingJobStatus) -> bool:
    """Return True if the ranks make steps and none of them has requested a checkpoint or memory for one."""
    views = [view.memory for view in observed.slots.values() if view.incarnation == status.incarnation]
    known = [one for one in views if one is not None]
    stepped = status.progress is not None and status.progress.step >= NEVER_SAVES_STEPS
    return stepped and status.saved is None and bool(known) and not any(one.opened for one in known)


def _store(observed: Observed) -> Iterator[Finding]:
    """Yield the findings that explain why no upload reaches the job's CheckpointStore. Saves to memory
    still go on.
    """
    named = observed.job.spec.checkpoint.tiers.store
    if named is None:
        return
    if wrong := unknown_store(observed) or store_not_allowed(observed):
        yield Finding(False, wrong.reason, wrong.message)
    for condition in observed.store.status.conditions if observed.store else []:
        if condition.type == ConditionType.READY and condition.status == "False":
            reason = Reasons.STORE_NOT_READY
            yield Finding(False, reason, reason.format(name=named, why=condition.message))
