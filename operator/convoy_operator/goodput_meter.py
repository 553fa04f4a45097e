"""Counts the jobs' goodput seconds by cause, from the ledgers in the jobs' statuses."""

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
    """The ledger of one job, and the seconds of the job that are already counted."""

    version: int
    """The job's resourceVersion at which `ledger` was read."""
    ledger: Goodput
    stepped: datetime | None
    """Time of the newest progress report in the job's status; None if there is none. The seconds after it
    belong to an unfinished step.
    """
    stepless_since: datetime | None
    """Time when the job's phase became Running, if the job has not reported any step; else None. Without
    steps it is unknown if the job makes progress.
    """
    counted: dict[str, float]
    """Seconds by cause that the next count must not add to the counters. They were already added, or must
    never be added.
    """

    def seconds(self, now: datetime) -> dict[str, float]:
        """Return the ledger's seconds by cause until `now`. Causes that this version of the operator does
        not know are left out.
        """
        found = settled(
            self.ledger, self.stepped, min(now, self.stepless_since) if self.stepless_since else now
        )
        return {cause: seconds for cause, seconds in found.items() if cause in Cause.__members__.values()}


class GoodputMeter:
    """The goodput counters of the leader. The previous leader has counted all seconds before the takeover.

    Every second of a job is counted once. The seconds of an unfinished step are counted when the step ends.
    The running seconds of a job that never reports a step are not counted. The ledger contains them as
    `start` or `restart`, but it is unknown if they were productive.
    """

    def __init__(self, counter: Counter) -> None:
        """Create the series of all causes. `counter` has one label, the cause."""
        self._counter = counter
        self._known: dict[str, _JobRecord] = {}
        """The record of each job, by uid of the job."""
        self._since: datetime | None = None
        for cause in Cause:
            counter.labels(cause.value)

    def __len__(self) -> int:
        return len(self._known)

    def start_leading(self, jobs: Iterable[CachedObject], since: datetime) -> None:
        """Start to count as the leader. `jobs` are all jobs in their current state. `since` is the time of
        the previous leader's last known renewal of the Lease.
        """
        self._since = since
        self._known = {}
        for job in jobs:
            self._read_ledger(job, since)

    def count(self, jobs: Iterable[CachedObject], now: datetime) -> None:
        """Count the seconds that the jobs' ledgers have gained since the last call."""
        for job in jobs:
            self._count(job, now)

    def remove(self, job: CachedObject, now: datetime) -> None:
        """Count the remaining seconds of a deleted job, and drop its record."""
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
        """Return the record of a job, read again if the job has changed. Return None if the job's ledger is
        invalid or another controller manages the job.

        For a job that existed before this replica became the leader, the ledger's seconds before that time
        count as already counted.
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
        """Return True if the job was created after the takeover, so that no earlier leader has counted its
        seconds.
        """
        made = job.raw["metadata"].get("creationTimestamp")
        return self._since is not None and made is not None and datetime.fromisoformat(made) >= self._since


def _stepless_since(status: Mapping[str, Any]) -> datetime | None:
    """Return the time when a running job's phase became Running. Return None if the job is not running or
    has reported a step.
    """
    if status.get("phase") != Phase.RUNNING or status.get("progress"):
        return None
    for one in status.get("conditions") or ():
        if one.get("type") == ConditionType.RUNNING and one.get("status") == "True":
            return datetime.fromisoformat(one["lastTransitionTime"])
    return None


def _exclude_stepless(before: _JobRecord, after: _JobRecord, now: datetime) -> None:
    """Exclude the time in phase Running that ended without a step: add its seconds to `after.counted`, so
    that they are never counted. Nothing will ever show if they were productive.
    """
    cause = before.ledger.cause
    same = cause == after.ledger.cause and before.ledger.since == after.ledger.since
    if not same or before.stepless_since != after.stepless_since:
        unknown = after.seconds(now).get(cause, 0.0) - before.seconds(now).get(cause, 0.0)
        after.counted[cause] = after.counted.get(cause, 0.0) + max(0.0, unknown)
