"""The state of replicas as far as a rollout depends on it, and the progress of the rollout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from convoy_controllers.servingjob import delivery
from convoy_controllers.servingjob.groups import Group, pod_name
from convoy_controllers.servingjob.moving import Departure
from convoy_controllers.servingjob.observed import Observed
from convoy_controllers.servingjob.rollout import Unit
from convoy_crds.servingjob_status import RolloutRecord

DOWN_SECONDS = 60.0
"""Seconds for which a replica must be unready before it may be deleted to make room for a new replica that
finds no node. A restart in place takes much less.
"""


def unit(
    observed: Observed,
    group: Group,
    now: datetime,
    *,
    leaves: Departure | None = None,
    no_model: bool = False,
) -> Unit:
    """Return the state of a group for the rollout of its role. `leaves`: the node that the group must leave;
    `no_model`: True if the delivery of its model has failed.
    """
    record = group.record
    return Unit(
        number=record.number,
        revision=record.revision,
        available=group.settled(now),
        ready=group.ready,
        failed=no_model or record.failed is not None,
        unplaced=_unplaced(observed, group),
        down=down(group, now, no_model=no_model),
        moving=leaves is not None,
        drained=leaves is not None and leaves.by_hand,
    )


def down(group: Group, now: datetime, *, no_model: bool) -> bool:
    """Return True if a replica has been unready for long, or has failed."""
    failed = no_model or group.record.failed is not None
    idle = now.timestamp() - group.changed if group.changed else 0.0
    return not group.ready and (failed or idle >= DOWN_SECONDS)


def _unplaced(observed: Observed, group: Group) -> bool:
    job = observed.job.metadata.name
    names = (pod_name(job, group.record, slot) for slot in range(group.size) if slot not in group.pods)
    if group.record.no_room or any(name in observed.create_errors for name in names):
        return True
    return any(pod.unschedulable and not pod.node and not pod.gated for pod in group.pods.values())


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of the rollout to one revision, over all roles."""

    target: str
    updated_ready: int
    old: int
    """Number of replicas of other revisions."""
    complete: bool


def progress(target: str, units: Mapping[str, Sequence[Unit]], complete: bool) -> Progress:
    """Return the progress of the rollout to `target`, from the live replicas."""
    every = [one for role in units.values() for one in role]
    updated = sum(one.available for one in every if one.revision == target)
    return Progress(target, updated, sum(one.revision != target for one in every), complete)


def record(before: RolloutRecord, seen: Progress, now: datetime, *, paused: bool) -> RolloutRecord:
    """Return the record with the time of the last progress. While the rollout is paused or complete, no time
    runs.
    """
    if seen.complete or paused:
        return RolloutRecord(revision=seen.target)
    if before.revision != seen.target or before.progress_at is None:
        return RolloutRecord(
            revision=seen.target, updated_ready=seen.updated_ready, progress_at=now, old=seen.old
        )
    if seen.updated_ready <= before.updated_ready and seen.old >= before.old:
        return before
    return RolloutRecord(
        revision=seen.target,
        updated_ready=max(before.updated_ready, seen.updated_ready),
        progress_at=now,
        old=min(before.old, seen.old),
    )


def stalled_at(
    rollout: RolloutRecord, observed: Observed, groups: Iterable[Group], seconds: int
) -> datetime | None:
    """Return the time at which the rollout halts for lack of progress; None if no time runs.

    A replica of the new revision that reports progress of loading its model counts as progress.
    """
    if rollout.progress_at is None:
        return None
    starting = [one for one in groups if one.record.revision == rollout.revision and not one.ready]
    loading = [delivery.progress(observed, group) for group in starting]
    loading += [
        rank.loading
        for group in starting
        for pod in group.pods.values()
        if (view := observed.slots.get(pod.uid)) is not None
        for rank in view.ranks
    ]
    late = max(loading, default=0.0) - rollout.progress_at.timestamp()
    return rollout.progress_at + timedelta(seconds=seconds + max(0.0, late))
