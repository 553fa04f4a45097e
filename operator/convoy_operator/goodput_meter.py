"""Counters of where the jobs' seconds went, from the ledgers in their statuses."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from prometheus_client import Counter
from pydantic import ValidationError

from convoy_crds.goodput import Cause, totals
from convoy_crds.trainingjob import Goodput
from convoy_operator.views import Parent


class GoodputMeter:
    """Of the leader: what was before it led, its predecessor has counted.

    A ledger may still move its last seconds from one cause to another: a fault is known after it happened. A
    counter does not go back, it waits until the ledger is past it.
    """

    def __init__(self, counter: Counter) -> None:
        """`counter` has one label, the cause."""
        self._counter = counter
        self._counted: dict[str, dict[str, float]] = {}
        self._since: datetime | None = None
        for cause in Cause:
            counter.labels(cause.value)

    def count(self, jobs: Iterable[Parent], now: datetime) -> None:
        """Counts what the jobs' ledgers hold at `now` and did not when they were last looked at."""
        seen: dict[str, dict[str, float]] = {}
        for job in jobs:
            try:
                found = totals(Goodput.model_validate(job.status.get("goodput") or {}), now)
            except ValidationError:
                continue
            before = self._counted.get(job.uid, {} if self._young(job) else found)
            seen[job.uid] = counted = {
                cause: max(seconds, before.get(cause, 0.0)) for cause, seconds in found.items()
            }
            for cause, seconds in counted.items():
                if cause in Cause.__members__.values():
                    self._counter.labels(cause).inc(seconds - before.get(cause, 0.0))
        self._counted = seen

    def begin(self, now: datetime) -> None:
        """This replica leads from now on."""
        self._counted = {}
        self._since = now

    def _young(self, job: Parent) -> bool:
        """Whether nobody can have counted for this job before."""
        made = job.raw["metadata"].get("creationTimestamp")
        return self._since is not None and made is not None and datetime.fromisoformat(made) >= self._since
