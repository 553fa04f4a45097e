"""The leases that workers hold, by worker and by deadline."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from convoy_workloads.spot.ledger.entry import Entry


class LeaseTable:
    """Finds leases that have timed out, and leases of one worker, without a look at every request."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._by_worker: dict[str, dict[str, None]] = {}
        self._deadlines: list[tuple[float, int, str]] = []
        """Heap of deadline, number of the lease and id. An extended lease stays at its earlier deadline until
        that passes.
        """

    def add(self, entry: Entry) -> None:
        """Add an entry that has a lease; without a lease, do nothing."""
        if entry.lease is None:
            return
        key = entry.request.id
        self._entries[key] = entry
        self._by_worker.setdefault(entry.lease.worker, {})[key] = None
        heapq.heappush(self._deadlines, (entry.lease.until, entry.lease.number, key))

    def remove(self, entry: Entry) -> None:
        """Remove an entry that still has its lease; without a lease, do nothing."""
        if entry.lease is None or self._entries.pop(entry.request.id, None) is None:
            return
        held = self._by_worker[entry.lease.worker]
        del held[entry.request.id]
        if not held:
            del self._by_worker[entry.lease.worker]

    def of_worker(self, worker: str) -> list[Entry]:
        """Return the entries whose leases a worker holds."""
        return [self._entries[key] for key in self._by_worker.get(worker, ())]

    def timed_out(self, now: float) -> Iterator[Entry]:
        """Yield the entries whose leases have timed out. The caller must remove each one."""
        while (at := self.next_timeout()) is not None and at <= now:
            yield self._entries[heapq.heappop(self._deadlines)[2]]

    def next_timeout(self) -> float | None:
        """Return the earliest deadline; None without leases."""
        while self._deadlines:
            until, number, key = self._deadlines[0]
            entry = self._entries.get(key)
            if entry is None or entry.lease is None or entry.lease.number != number:
                heapq.heappop(self._deadlines)
            elif entry.lease.until > until:
                heapq.heapreplace(self._deadlines, (entry.lease.until, number, key))
            else:
                return until
        return None
