"""Counters of where the jobs' seconds went, from the ledgers in their statuses."""

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
    """What is known of one job."""

    version: int
    """Of the status that `ledger` was read from."""
    ledger: Goodput
    stepped: datetime | None
    """When its last step ended, as far as that is stored."""
    stepless_since: datetime | None
    """Since when it runs, where it has never told of a step: whether it makes any is not known."""
    counted: dict[str, float]
    """By cause. What is counted nowhere is in it too."""

    def seconds(self, now: datetime) -> dict[str, float]:
        """By cause. A later operator may know of further ones."""
        found = settled(
            self.ledger, self.stepped, min(now, self.stepless_since) if self.stepless_since else now
        )
        return {cause: seconds for cause, seconds in found.items() if cause in Cause.__members__.values()}


class GoodputMeter:
    """Of the leader: what was before its predecessor's end, that one has counted.

    Every second of a job is counted once. Those of a step that has not ended are counted with its end, also
    of the first one. Of a job that never tells of a step, those in which it runs are not counted at all: the
    ledger has them as `start` or `restart`, but nobody sees what was made of them.
    """

    def __init__(self, counter: Counter) -> None:
        """`counter` has one label, the cause."""
        self._counter = counter
        self._known: dict[str, _JobRecord] = {}
        """By uid."""
        self._since: datetime | None = None
        for cause in Cause:
            counter.labels(cause.value)

    def __len__(self) -> int:
        return len(self._known)

    def start_leading(self, jobs: Iterable[CachedObject], since: datetime) -> None:
        """This replica leads. `since`: when the last leader was last known to; `jobs` are as it left them."""
        self._since = since
        self._known = {}
        for job in jobs:
            self._read_ledger(job, since)

    def count(self, jobs: Iterable[CachedObject], now: datetime) -> None:
        """Counts what the jobs' ledgers hold at `now` and did not when they were last looked at."""
        for job in jobs:
            self._count(job, now)

    def remove(self, job: CachedObject, now: datetime) -> None:
        """The job has been deleted: what is left of it is counted, and it is forgotten."""
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
        """Reads a job's ledger; None for one that cannot be read, and for another manager's.

        What an old job has had is counted.
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
        """Whether nobody can have counted for this job before."""
        made = job.raw["metadata"].get("creationTimestamp")
        return self._since is not None and made is not None and datetime.fromisoformat(made) >= self._since


def _stepless_since(status: Mapping[str, Any]) -> datetime | None:
    """See _JobRecord."""
    if status.get("phase") != Phase.RUNNING or status.get("progress"):
        return None
    for one in status.get("conditions") or ():
        if one.get("type") == ConditionType.RUNNING and one.get("status") == "True":
            return datetime.fromisoformat(one["lastTransitionTime"])
    return None


def _exclude_stepless(before: _JobRecord, after: _JobRecord, now: datetime) -> None:
    """Takes for counted what a job ran without a step, once that run is over: nothing will tell of it."""
    cause = before.ledger.cause
    same = cause == after.ledger.cause and before.ledger.since == after.ledger.since
    if not same or before.stepless_since != after.stepless_since:
        unknown = after.seconds(now).get(cause, 0.0) - before.seconds(now).get(cause, 0.0)
        after.counted[cause] = after.counted.get(cause, 0.0) + max(0.0, unknown)
