"""Counters of the jobs' goodput by cause, read from the ledgers in the jobs' statuses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from prometheus_client import Counter
from pydantic import ValidationError

from convoy_controllers.cached import CachedObject
from convoy_controllers.trainingjob.controller import managed
from convoy_controllers.trainingjob.counting import gains, settled
from convoy_crds.goodput import Cause
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob_status import Goodput, Phase, Progress


@dataclass(slots=True)
class _JobRecord:
    """The ledger of one job, and the seconds that are already counted."""

    version: int
    """resourceVersion of the job that `ledger` was read from."""
    ledger: Goodput
    stepped: datetime | None
    """End of the job's last stored step."""
    stepless_since: datetime | None
    """Start of the current run, if the job never reported a step: then it is unknown whether it makes any."""
    counted: dict[str, float]
    """Seconds by cause that are counted, or that must never be counted."""

    def seconds(self, now: datetime) -> dict[str, float]:
        """Return the ledger's seconds by cause at `now`. Causes that only a later operator knows are left
        out.
        """
        found = settled(
            self.ledger, self.stepped, min(now, self.stepless_since) if self.stepless_since else now
        )
        return {cause: seconds for cause, seconds in found.items() if cause in Cause.__members__.values()}


class GoodputMeter:
    """The leader's goodput counters. Seconds before the takeover were counted by the last leader.

    Every second of a job is counted once. The seconds of an unfinished step are counted when the step ends.
    If a job never reports a step, its running seconds are not counted: the ledger has them as `start` or
    `restart`, but nobody can see their use.
    """

    def __init__(self, counter: Counter) -> None:
        """Create all series. `counter` has one label, the cause."""
        self._counter = counter
        self._known: dict[str, _JobRecord] = {}
        """Records by uid of the job."""
        self._since: datetime | None = None
        for cause in Cause:
            counter.labels(cause.value)

    def __len__(self) -> int:
        return len(self._known)

    def start_leading(self, jobs: Iterable[CachedObject], since: datetime) -> None:
        """Start to count as the leader. `since` is the last known renewal of the last leader; `jobs` are in
        their current state.
        """
        self._since = since
        self._known = {}
        for job in jobs:
            self._read_ledger(job, since)

    def count(self, jobs: Iterable[CachedObject], now: datetime) -> None:
        """Count the seconds that the jobs' ledgers gained since the last call."""
        for job in jobs:
            self._count(job, now)

    def remove(self, job: CachedObject, now: datetime) -> None:
        """Count the last seconds of a deleted job, and drop its record."""
        if self._since is not None:
            self._count(job, now)
            self._known.pop(job.uid, None)

    def _count(self, job: CachedObject, now: datetime) -> None:
        if (known := self._read_ledger(job, now)) is None:
            return
        for cause, seconds in gains(known.counted, known.seconds(now)).items():
            known.counted[cause] = known.counted.get(cause, 0.0) + seconds
            self._counter.labels(cause).inc(seconds)

    def _read_ledger(self, job: CachedObject, now: datetime) -> _JobRecord | None:
        """Return the record of a job; None for an unreadable job, and for one that another manager manages.

        A job that existed before the takeover starts with all its seconds counted.
        """
        if not managed(job.raw):
            return None
        known = self._known.get(job.uid)
        if known is not None and known.version == job.version:
            return known
        try:
            ledger = Goodput.model_validate(job.status.get("goodput") or {})
            stepped = Progress.model_validate(job.status.get("progress") or {}).time
        except ValidationError:
            return None
        found = _JobRecord(job.version, ledger, stepped, _stepless_since(job.status), {})
        if known is not None:
            found.counted = known.counted
            if known.stepless_since is not None and not job.status.get("progress"):
                _exclude_stepless(known, found, now)
        elif not self._is_new(job):
            found.counted = found.seconds(now)
        self._known[job.uid] = found
        return found

    def _is_new(self, job: CachedObject) -> bool:
        """Return True if the job was created after the takeover, so no earlier leader counted for it."""
        made = job.raw["metadata"].get("creationTimestamp")
        return self._since is not None and made is not None and datetime.fromisoformat(made) >= self._since


def _stepless_since(status: Mapping[str, Any]) -> datetime | None:
    """Return the start of a run that has not reported a step; None for any other job."""
    if status.get("phase") != Phase.RUNNING or status.get("progress"):
        return None
    for one in status.get("conditions") or ():
        if one.get("type") == ConditionType.RUNNING and one.get("status") == "True":
            return datetime.fromisoformat(one["lastTransitionTime"])
    return None


def _exclude_stepless(before: _JobRecord, after: _JobRecord, now: datetime) -> None:
    """Mark the seconds of a finished run without steps as counted: nothing will ever report their use."""
    cause = before.ledger.cause
    same = cause == after.ledger.cause and before.ledger.since == after.ledger.since
    if not same or before.stepless_since != after.stepless_since:
        unknown = after.seconds(now).get(cause, 0.0) - before.seconds(now).get(cause, 0.0)
        after.counted[cause] = after.counted.get(cause, 0.0) + max(0.0, unknown)
