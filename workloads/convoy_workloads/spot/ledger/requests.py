"""The ledger of requests. Each request ends exactly once, whatever workers do.

Workers pull leases. A lease that is not renewed times out, and another worker resumes from the last commit.
The first result wins; later results are counted and dropped. The ledger reads no clock: callers pass `now`
in Unix seconds. The driver saves the ledger in the same checkpoint as the trainer's weights, so that both
go back to the same moment after a crash.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from convoy_workloads.spot.ledger.encoding import decode, encode
from convoy_workloads.spot.ledger.entry import Entry, entry_from_json
from convoy_workloads.spot.ledger.leases import LeaseTable
from convoy_workloads.spot.ledger.request import (
    EVENTS,
    OPEN,
    Commit,
    InvalidRequest,
    Lease,
    Request,
    RequestKind,
    RequestState,
    Result,
)

MAX_OPEN = 100_000
MAX_ATTEMPTS = 20
"""Number of leases without progress after which a request expires."""
MAX_AGE: Mapping[RequestKind, int] = MappingProxyType({RequestKind.ROLLOUT: 0, RequestKind.EXPLORE: 1})


class RequestLedger:
    """The requests of one job."""

    def __init__(
        self,
        lease_seconds: float,
        incarnation: int = 0,
        max_age: Mapping[RequestKind, int] = MAX_AGE,
        max_open: int = MAX_OPEN,
        max_attempts: int = MAX_ATTEMPTS,
    ) -> None:
        """Create an empty ledger.

        `incarnation`: number of this run of the driver; each restart must have a higher one. `max_age`:
        number of versions that a result may be behind the trainer.
        """
        self._lease_seconds = lease_seconds
        self._incarnation = incarnation
        self._max_age = dict(max_age)
        self._max_open = max_open
        self._max_attempts = max_attempts
        self._entries: dict[str, Entry] = {}
        self._queues: dict[RequestKind, list[tuple[int, int, str]]] = {kind: [] for kind in RequestKind}
        self._order = 0
        self._leases = LeaseTable()
        self._granted = 0
        self._closed_before = 0
        """Iterations before this one have ended, and their requests are no longer in the ledger."""
        self._planned = 0
        self._open = 0
        self._ended: Counter[str] = Counter()
        self._events: Counter[str] = Counter()

    # Planning

    def plan(self, requests: Iterable[Request]) -> int:
        """Add requests and return how many are new to the ledger.

        Raises InvalidRequest for an iteration that has been closed, or if too many requests are open.
        """
        added = 0
        for request in requests:
            if request.iteration < self._closed_before:
                raise InvalidRequest(
                    f"iteration {request.iteration} has ended; plan for {self._closed_before} or later"
                )
            if request.id in self._entries:
                continue
            if self._open >= self._max_open:
                raise InvalidRequest(f"{self._max_open} requests are open; consume or end some first")
            self._entries[request.id] = Entry(request)
            self._planned += 1
            self._open += 1
            self._enqueue(self._entries[request.id])
            added += 1
        return added

    # Work

    def lease(
        self, worker: str, now: float, kinds: Sequence[RequestKind] = tuple(RequestKind)
    ) -> Lease | None:
        """Lease the next request to a worker; None if there is none. `kinds`: first choice first.

        Requests with progress come first, then those of the earliest iteration.
        """
        self.time_out(now)
        for kind in kinds:
            queue = self._queues[kind]
            while queue:
                entry = self._entries.get(heapq.heappop(queue)[2])
                if entry is not None and entry.state is RequestState.PLANNED:
                    return self._grant(entry, worker, now)
        return None

    def renew(self, lease: Lease, now: float) -> bool:
        """Extend a lease. Return False if the worker must drop the request."""
        entry = self._held(lease)
        if entry is None or entry.lease is None:
            return False
        entry.lease = entry.lease.extended(now + self._lease_seconds)
        return True

    def commit(self, lease: Lease, commit: Commit, now: float) -> bool:
        """Save progress and extend the lease. Return False if the worker must drop the request.

        Without the lease, progress counts only if the same weights made it and it is further than the saved
        one.
        """
        entry = self._known(lease)
        if entry is None:
            return False
        if self.renew(lease, now):
            self._save(entry, commit)
            return True
        if entry.state in (RequestState.PLANNED, RequestState.LEASED) and entry.is_further(commit):
            self._save(entry, commit)
        else:
            self._events["staleCommits"] += 1
        return False

    def surrender(self, lease: Lease, commit: Commit | None = None) -> bool:
        """Give a lease back at once, with the progress so far. Return False if the worker held none."""
        entry = self._held(lease)
        if entry is None:
            return False
        if commit is not None:
            self._save(entry, commit)
        self._end_lease(entry, "surrendered")
        return True

    def revoke(self, worker: str) -> list[str]:
        """Take back every lease of a lost worker. Return the ids of the requests."""
        return [self._end_lease(entry, "revoked") for entry in self._leases.of_worker(worker)]

    def time_out(self, now: float) -> list[str]:
        """Take back every lease whose deadline has passed. Return the ids of the requests."""
        return [self._end_lease(entry, "timedOut") for entry in self._leases.timed_out(now)]

    def done(self, lease: Lease, result: Result) -> bool:
        """Record a result. Return True if it is the first one of the request, and the request is open.

        The lease may have timed out: the result counts all the same.
        """
        entry = self._known(lease)
        if entry is None:
            return False
        if entry.state not in (RequestState.PLANNED, RequestState.LEASED):
            self._events["duplicates" if entry.result is not None else "late"] += 1
            return False
        self._leases.remove(entry)
        entry.state, entry.lease, entry.commit, entry.result = RequestState.DONE, None, None, result
        return True

    # Endings

    def consume(self, ids: Iterable[str], version: int) -> list[tuple[Request, Result]]:
        """End requests that are done and return their results, for a trainer with weights of `version`.

        A result that is too old expires instead. Requests that are not done stay as they are.
        """
        consumed = []
        for key in ids:
            entry = self._entries.get(key)
            if entry is None or entry.state is not RequestState.DONE or entry.result is None:
                continue
            if version - entry.result.version > self._max_age[entry.request.kind]:
                self._events["staleResults"] += 1
                self._end(entry, RequestState.EXPIRED)
            else:
                consumed.append((entry.request, entry.result))
                self._end(entry, RequestState.CONSUMED)
        return consumed

    def expire(self, ids: Iterable[str]) -> int:
        """End open requests whose results would be too old. Return their number."""
        return sum(self._end_open(key, RequestState.EXPIRED) for key in ids)

    def supersede(self, ids: Iterable[str]) -> int:
        """End open requests that the planner no longer needs. Return their number."""
        return sum(self._end_open(key, RequestState.SUPERSEDED) for key in ids)

    def close_iterations(self, before: int) -> int:
        """Expire open requests of earlier iterations and drop the records of all requests of these.

        Return the number of expired requests. Call this at each iteration, to bound the ledger.
        """
        self._closed_before = max(self._closed_before, before)
        old = [key for key, entry in self._entries.items() if entry.request.iteration < self._closed_before]
        expired = self.expire(old)
        for key in old:
            del self._entries[key]
        self._rebuild_queues()
        return expired

    # Views

    def state(self, key: str) -> RequestState | None:
        """Return the state of a request; None if it is not in the ledger, or no longer."""
        entry = self._entries.get(key)
        return None if entry is None else entry.state

    def select(
        self,
        states: Iterable[RequestState] = OPEN,
        kind: RequestKind | None = None,
        iteration: int | None = None,
    ) -> list[Request]:
        """Return the requests in these states, in the order of planning."""
        wanted = frozenset(states)
        return [
            entry.request
            for entry in self._entries.values()
            if entry.state in wanted
            and kind in (None, entry.request.kind)
            and iteration in (None, entry.request.iteration)
        ]

    def results(self, kind: RequestKind, iteration: int) -> Iterator[tuple[Request, Result]]:
        """Yield the results that wait for the trainer. Yielding them ends no request."""
        for request in self.select((RequestState.DONE,), kind, iteration):
            result = self._entries[request.id].result
            if result is not None:
                yield request, result

    def next_timeout(self) -> float | None:
        """Return the Unix time at which the next lease times out; None without leases."""
        return self._leases.next_timeout()

    def counts(self) -> dict[str, int]:
        """Return the number of requests planned so far, of open and ended ones, and of each event.

        `planned` is always the sum of `open`, `consumed`, `expired` and `superseded`.
        """
        endings = {state.lower(): self._ended[state] for state in RequestState if state not in OPEN}
        events = {name: self._events[name] for name in EVENTS}
        return {"planned": self._planned, "open": self._open, **endings, **events}

    # State

    def state_dict(self) -> dict[str, bytes]:
        """Return the whole ledger as one entry of a checkpoint."""
        return {
            "requests": encode(
                {
                    "incarnation": self._incarnation,
                    "granted": self._granted,
                    "closedBefore": self._closed_before,
                    "planned": self._planned,
                    "ended": dict(self._ended),
                    "events": dict(self._events),
                    "entries": [entry.to_json() for entry in self._entries.values()],
                }
            )
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace the ledger by a saved one. The settings of this ledger stay.

        Leases stay too, and time out if their workers are gone.
        """
        saved = decode(state["requests"])
        # An equal number would let a lease of the earlier run pass for one of this run.
        self._incarnation = max(self._incarnation, saved["incarnation"] + 1)
        self._granted = saved["granted"]
        self._closed_before = saved["closedBefore"]
        self._planned = saved["planned"]
        self._ended = Counter(saved["ended"])
        self._events = Counter(saved["events"])
        self._entries = {entry.request.id: entry for entry in map(entry_from_json, saved["entries"])}
        self._open = sum(entry.state in OPEN for entry in self._entries.values())
        self._leases = LeaseTable()
        for entry in self._entries.values():
            if entry.lease is not None:
                self._leases.add(entry)
        self._rebuild_queues()

    # Parts

    def _rebuild_queues(self) -> None:
        self._queues = {kind: [] for kind in RequestKind}
        for entry in self._entries.values():
            if entry.state is RequestState.PLANNED:
                self._enqueue(entry)

    def _enqueue(self, entry: Entry) -> None:
        request, self._order = entry.request, self._order + 1
        rank = -1 if entry.commit is not None else request.iteration
        heapq.heappush(self._queues[request.kind], (rank, self._order, request.id))

    def _grant(self, entry: Entry, worker: str, now: float) -> Lease:
        self._granted += 1
        until = now + self._lease_seconds
        entry.lease = Lease(entry.request, worker, self._incarnation, self._granted, until, entry.commit)
        entry.state = RequestState.LEASED
        entry.attempts += 1
        self._leases.add(entry)
        self._events["leased"] += 1
        self._events["resumed"] += entry.commit is not None
        return entry.lease

    def _known(self, lease: Lease) -> Entry | None:
        entry = self._entries.get(lease.request.id)
        self._events["unknown"] += entry is None
        return entry

    def _held(self, lease: Lease) -> Entry | None:
        """Return the entry of a lease that is still valid."""
        entry = self._entries.get(lease.request.id)
        if entry is None or entry.lease is None:
            return None
        held = entry.lease
        same = (held.incarnation, held.number) == (lease.incarnation, lease.number)
        return entry if same else None

    def _save(self, entry: Entry, commit: Commit) -> None:
        if entry.is_further(commit):
            entry.attempts = 0
        entry.commit = commit
        self._events["committed"] += 1

    def _end_lease(self, entry: Entry, cause: str) -> str:
        """End the lease of an entry. Return the id of the request."""
        self._events[cause] += 1
        self._leases.remove(entry)
        entry.lease = None
        if entry.attempts >= self._max_attempts:
            self._events["exhausted"] += 1
            self._end(entry, RequestState.EXPIRED)
        else:
            entry.state = RequestState.PLANNED
            self._enqueue(entry)
        return entry.request.id

    def _end_open(self, key: str, ending: RequestState) -> bool:
        entry = self._entries.get(key)
        if entry is None or entry.state not in OPEN:
            return False
        self._end(entry, ending)
        return True

    def _end(self, entry: Entry, ending: RequestState) -> None:
        self._leases.remove(entry)
        entry.state, entry.lease, entry.commit = ending, None, None
        if entry.result is not None:
            # Keeps the fact that there was a result, which tells a repeat from a late result.
            entry.result = Result(entry.result.version, {})
        self._ended[ending] += 1
        self._open -= 1
