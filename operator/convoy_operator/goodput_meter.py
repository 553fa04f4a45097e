"""Counters of where the jobs' seconds went, from the ledgers in their statuses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from prometheus_client import Counter
from pydantic import ValidationError

from convoy_controllers.trainingjob.counting import gains, settled
from convoy_crds.goodput import Cause
from convoy_crds.trainingjob import Goodput, Progress
from convoy_operator.views import Parent, managed


@dataclass(slots=True)
class _Known:
    """What is known of one job."""

    version: int
    """Of the status that `ledger` was read from."""
    ledger: Goodput
    stepped: datetime | None
    """When its last step ended, as far as that is stored."""
    counted: dict[str, float]
    """By cause."""

    def seconds(self, now: datetime) -> dict[str, float]:
        """By cause. A later operator may know of further ones."""
        found = settled(self.ledger, self.stepped, now)
        return {cause: seconds for cause, seconds in found.items() if cause in Cause.__members__.values()}


class GoodputMeter:
    """Of the leader: what was before its predecessor's end, that one has counted.

    Every second of a job is counted once. Those of a step that has not ended are counted with its end.
    """

    def __init__(self, counter: Counter) -> None:
        """`counter` has one label, the cause."""
        self._counter = counter
        self._known: dict[str, _Known] = {}
        """By uid."""
        self._since: datetime | None = None
        for cause in Cause:
            counter.labels(cause.value)

    def __len__(self) -> int:
        return len(self._known)

    def begin(self, jobs: Iterable[Parent], since: datetime) -> None:
        """This replica leads. `since`: when the last leader was last known to; `jobs` are as it left them."""
        self._since = since
        self._known = {}
        for job in jobs:
            self._look(job, since)

    def count(self, jobs: Iterable[Parent], now: datetime) -> None:
        """Counts what the jobs' ledgers hold at `now` and did not when they were last looked at."""
        for job in jobs:
            self._count(job, now)

    def gone(self, job: Parent, now: datetime) -> None:
        """The job has been deleted: what is left of it is counted, and it is forgotten."""
        if self._since is not None:
            self._count(job, now)
            self._known.pop(job.uid, None)

    def _count(self, job: Parent, now: datetime) -> None:
        if (known := self._look(job, now)) is None:
            return
        for cause, seconds in gains(known.counted, known.seconds(now)).items():
            known.counted[cause] = known.counted.get(cause, 0.0) + seconds
            self._counter.labels(cause).inc(seconds)

    def _look(self, job: Parent, now: datetime) -> _Known | None:
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
        if known is None:
            known = self._known[job.uid] = _Known(job.version, ledger, stepped, {})
            known.counted = {} if self._young(job) else known.seconds(now)
        known.version, known.ledger, known.stepped = job.version, ledger, stepped
        return known

    def _young(self, job: Parent) -> bool:
        """Whether nobody can have counted for this job before."""
        made = job.raw["metadata"].get("creationTimestamp")
        return self._since is not None and made is not None and datetime.fromisoformat(made) >= self._since
