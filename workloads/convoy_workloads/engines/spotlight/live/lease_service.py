"""The driver's side of the leases: it applies the messages of workers to the ledger.

One thread uses the ledger: the trainer's loop, which serves the workers between its own calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from convoy_workloads.engines.spotlight.live.messages import Done, Message, Progress, Pull, Surrender, Weights
from convoy_workloads.spot.ledger.request import Lease, Request, Result
from convoy_workloads.spot.ledger.requests import RequestLedger


class LeaseService:
    """Answers the messages of workers."""

    def __init__(
        self,
        ledger: RequestLedger,
        clock: Callable[[], float],
        weights: Callable[[int], Any] = lambda version: None,
    ) -> None:
        """Serve `ledger`. `clock`: Unix seconds. `weights`: returns the answer to `Weights`."""
        self._ledger = ledger
        self._clock = clock
        self._weights = weights
        self._paused: set[str] = set()
        self.finished: list[tuple[Request, Result]] = []
        """Requests whose first result has arrived. The caller empties the list."""

    def pause(self, worker: str) -> None:
        """Give this worker no further lease until `resume`."""
        self._paused.add(worker)

    def resume(self, worker: str) -> None:
        """Give this worker leases again."""
        self._paused.discard(worker)

    def remove(self, worker: str) -> list[str]:
        """Take back all leases of a lost worker. Return the ids of the requests."""
        self._paused.discard(worker)
        return self._ledger.revoke(worker)

    def handle(self, worker: str, message: Message) -> Any:
        """Apply a message and return the answer."""
        now = self._clock()
        match message:
            case Pull(capacity):
                return self._pull(worker, capacity, now)
            case Progress(commits):
                kept = (lease.number for lease, commit in commits if self._ledger.commit(lease, commit, now))
                return frozenset(kept)
            case Surrender(given):
                return sum(self._ledger.surrender(lease, progress) for lease, progress in given)
            case Done(results):
                return sum(self._finish(lease, result) for lease, result in results)
            case Weights(version):
                return self._weights(version)

    def _finish(self, lease: Lease, result: Result) -> bool:
        first = self._ledger.done(lease, result)
        if first:
            self.finished.append((lease.request, result))
        return first

    def _pull(self, worker: str, capacity: int, now: float) -> list[Lease]:
        """Return at most `capacity` leases of one version of the weights."""
        if worker in self._paused:
            return []
        found: list[Lease] = []
        while len(found) < capacity:
            lease = self._ledger.lease(worker, now)
            if lease is None:
                break
            if found and lease.request.version != found[0].request.version:
                self._ledger.surrender(lease)
                break
            found.append(lease)
        return found
