"""Sets the condition Checkpointing of a job. It is True if the state is saved as the spec asks. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from convoy_controllers.trainingjob import interval
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.trainingjob.validity import store_not_allowed, unknown_store
from convoy_crds.layout import present
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob_status import CheckpointStatus, Progress, TrainingJobStatus

GRAVEST_FIRST = (
    Reasons.STORE_UNAVAILABLE,
    Reasons.NO_CHECKPOINT_MEMORY,
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
    Reasons.NOTHING_SAVED,
    # If only the reasons below apply, the state is saved as the spec asks.
    Reasons.INEXACT_JOURNAL,
    Reasons.SINGLE_DOMAIN,
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
}
"""Reasons for the problems that agents report, by the names of the problems in hub.proto."""
UNSAVED = (Reasons.NO_CHECKPOINT_MEMORY, Reasons.NOT_COPIED, Reasons.OVERDUE)
"""Reasons under which further steps are not saved."""
LATE_INTERVALS, LATE_SECONDS, LATE_STEPS = 5, 120.0, 3
"""A save is overdue if all three limits are exceeded: LATE_INTERVALS save intervals since the previous save,
LATE_SECONDS seconds since the save was due, and LATE_STEPS steps since the previous save. The last two limits
allow for very long steps.
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
        if not draft.observed.job.spec.checkpoint.tiers.any:
            draft.drop(ConditionType.CHECKPOINTING)
        return
    old = next((c for c in draft.status.conditions if c.type == ConditionType.CHECKPOINTING), None)
    if found.reason.warning and (old is None or old.reason != found.reason.name):
        draft.event(found.reason, found.message)
    draft.condition(ConditionType.CHECKPOINTING, *found)


def finding(observed: Observed, status: TrainingJobStatus) -> Finding | None:
    """Return the gravest finding; None if the job saves no checkpoints, or before an incarnation has
    formed.
    """
    if not observed.job.spec.checkpoint.tiers.any or not status.formed:
        return None
    found = [
        *_troubles(observed, status),
        *_store(observed),
        *_overdue(observed, status),
        *_saving(observed, status),
    ]
    return min(found, key=lambda one: GRAVEST_FIRST.index(one.reason))


def _troubles(observed: Observed, status: TrainingJobStatus) -> Iterator[Finding]:
    """Yield the problems that agents report in this incarnation, in the order of the slots."""
    point = status.checkpoint
    # If the job has no checkpoint, nothing can be lost. If this incarnation has saved one itself, the earlier
    # loss no longer matters. In both cases a report of lost checkpoints is ignored.
    unharmed = point is None or point.incarnation == status.incarnation
    for view in observed.slots.values():
        if view.incarnation != status.incarnation:
            continue
        for kind, why in view.troubles:
            reason = TROUBLES[kind]
            if reason == Reasons.CHECKPOINTS_LOST and unharmed:
                continue
            message = reason.format(
                node=view.node,
                why=why,
                incarnation=status.incarnation,
                name=observed.job.spec.checkpoint.tiers.store,
            )
            yield Finding(reason == Reasons.INEXACT_JOURNAL, reason, message)


def overdue(point: CheckpointStatus, progress: Progress, began: float, interval_seconds: float) -> bool:
    """Return True if steps go on but the saves that the interval asks for are missing.

    `point` is the newest checkpoint. `began` is the Unix time at which the first step of the incarnation
    ended. A checkpoint of an earlier incarnation counts as saved at `began`. Only time up to the newest
    step counts.
    """
    since = max(point.time.timestamp(), began)
    limit = max(LATE_INTERVALS * interval_seconds, interval_seconds + LATE_SECONDS)
    late = progress.time is not None and progress.time.timestamp() - since > limit
    return late and progress.step - point.step >= LATE_STEPS


def _overdue(observed: Observed, status: TrainingJobStatus) -> Iterator[Finding]:
    """Yield a finding if saves are overdue, whatever the cause."""
    views = observed.slots.values()
    ranks = [rank for view in views if view.incarnation == status.incarnation for rank in view.ranks]
    began = min((rank.first_step for rank in ranks if rank.first_step), default=0.0)
    point, progress = status.checkpoint, status.progress
    if not began or point is None or progress is None:
        return
    if overdue(point, progress, began, interval.seconds(observed.job, status)):
        facts = {"at": f"{point.time:%Y-%m-%dT%H:%M:%SZ}", "step": point.step}
        every = interval.described(observed.job, status)
        yield Finding(False, Reasons.OVERDUE, Reasons.OVERDUE.format(interval=every, **facts))


def _saving(observed: Observed, status: TrainingJobStatus) -> Iterator[Finding]:
    """Yield the findings that do not come from a problem of an agent or a store: a missing peer, no save
    yet, a single failure domain, or no problem at all.
    """
    tiers = observed.job.spec.checkpoint.tiers
    every = interval.described(observed.job, status)
    names = _member_nodes(observed, status)
    if tiers.peer and len(names) == 1:
        yield Finding(False, Reasons.NO_PEER, Reasons.NO_PEER.format(node=names[0]))
    if status.checkpoint is None:
        yield Finding(False, Reasons.NOTHING_SAVED, Reasons.NOTHING_SAVED.format(interval=every))
    facts = {"interval": every, "tiers": ", ".join(tiers.names)}
    if tiers.peer and names:
        key = tiers.peer.topology_key
        known = {name: observed.nodes[name].labels.get(key, "") for name in names if name in observed.nodes}
        if len(set(known.values())) == 1:
            where = next(iter(known.values())) or "no node has the label"
            reason = Reasons.SINGLE_DOMAIN
            yield Finding(True, reason, reason.format(key=key, where=where, **facts))
    yield Finding(True, Reasons.SAVING, Reasons.SAVING.format(**facts))


def _member_nodes(observed: Observed, status: TrainingJobStatus) -> list[str]:
    """Return the names of the incarnation's nodes; empty while one of its pods is missing or has no node.

    The names come from the pods. While an incarnation starts, the agents' reports arrive one by one, so
    they would name too few nodes.
    """
    members = {slot.pod for slot in present(observed.job.model_copy(update={"status": status}))}
    uid = observed.job.metadata.uid
    placed = {pod.name: pod.node for pod in observed.pods if pod.owner_uid == uid and pod.node}
    return sorted({placed[name] for name in members}) if members <= placed.keys() else []


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
