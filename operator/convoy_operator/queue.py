"""The work queue: keys of objects to reconcile, each at most once, and never two workers on one key.

A key has at most one due time; adding the key again can only move that forward. A key that becomes due
while a worker handles it waits until the worker is done. After a failure the key waits for its back-off.
Changes of children do not shorten the back-off; urgent changes (a new spec, an exit) do.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from convoy_operator.limits import backoff

K = TypeVar("K", bound=Hashable)

_FAIRNESS = 8
"""Every this many keys, a low-priority key goes first, even if high-priority keys wait."""


@dataclass(slots=True)
class _Entry:
    """The queue's state of one key."""

    due: float | None = None
    """Time at which the key needs a worker; None if it needs none."""
    high: bool = False
    """True for high priority: changed objects come before periodic reconciles."""
    ready: bool = False
    """True if the key is due and waits for a worker."""
    ready_at: float = 0.0
    running: bool = False
    news: bool = False
    """True if an urgent add came while a worker handled the key."""
    failures: int = 0
    not_before: float = 0.0
    """End of the key's back-off."""


@dataclass(slots=True)
class WorkQueue(Generic[K]):
    """See the module. Times are the event loop's. Equal keys are one entry, so the number of objects bounds
    the size.
    """

    min_backoff: float = 0.5
    """Seconds of the shortest back-off."""
    max_backoff: float = 60.0
    """Seconds of the longest back-off."""
    rng: random.Random = field(default_factory=random.Random)
    on_wait: Callable[[float], None] = lambda seconds: None
    """Called with the seconds that a key waited for a worker."""
    open: bool = True
    """True if keys are accepted. A replica without workers keeps its queue closed, else the keys would wait
    forever.
    """
    _entries: dict[K, _Entry] = field(default_factory=dict)
    _heap: list[tuple[float, int, K]] = field(default_factory=list)
    _order: itertools.count[int] = field(default_factory=itertools.count)
    _high: deque[K] = field(default_factory=deque)
    _low: deque[K] = field(default_factory=deque)
    _waiters: deque[asyncio.Future[None]] = field(default_factory=deque)
    _timer: asyncio.TimerHandle | None = None
    _armed_at: float = 0.0
    """The time for which the timer is set."""
    _popped: int = 0

    def add(self, key: K, delay: float = 0.0, *, high: bool = True) -> None:
        """Schedule a reconcile of `key` within `delay` seconds.

        A delay of 0 with high priority is urgent: it overrides a back-off. `high=False` is for periodic
        reconciles. A closed queue ignores the call.
        """
        if not self.open:
            return
        now = self._now()
        entry = self._entries.setdefault(key, _Entry())
        if delay <= 0 and high:
            entry.not_before = 0.0
            entry.news = entry.running
        if high and not entry.high:
            entry.high = True
            if entry.ready:
                self._low.remove(key)
                self._high.append(key)
        due = max(now + delay, entry.not_before)
        if entry.due is None or due < entry.due:
            entry.due = due
            if not entry.ready and not entry.running:
                self._schedule(key, entry)

    async def get(self) -> K:
        """Return the next due key; wait while there is none. The caller must call `done` for it."""
        while True:
            self._release(self._now())
            key = self._pop()
            if key is not None:
                entry = self._entries[key]
                entry.ready, entry.running, entry.due, entry.high, entry.news = (
                    False,
                    True,
                    None,
                    False,
                    False,
                )
                self.on_wait(self._now() - entry.ready_at)
                if self.depth:
                    # These keys were released here, before the timer fired. Re-arming the timer would wake no
                    # worker for them.
                    self._wake()
                return key
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                # This waiter was woken and cancelled at the same time; pass the wake-up on.
                if waiter.done() and not waiter.cancelled():
                    self._wake()
                raise
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def done(self, key: K) -> None:
        """Record that the worker finished `key`; if the key became due meanwhile, schedule it again."""
        entry = self._entries[key]
        entry.running = False
        if entry.due is not None:
            self._schedule(key, entry)
        elif entry.failures == 0:
            del self._entries[key]

    def retry(self, key: K) -> float:
        """Schedule a key again after a failure; return the seconds of its back-off. Call before `done`."""
        entry = self._entries.setdefault(key, _Entry())
        wait = backoff(entry.failures, self.min_backoff, self.max_backoff, self.rng)
        entry.failures += 1
        if entry.news:
            # The failed attempt may not have seen the urgent change, so retry at once.
            return 0.0
        entry.not_before = self._now() + wait
        entry.due = entry.not_before
        if not entry.running and not entry.ready:
            self._schedule(key, entry)
        return wait

    def reset_backoff(self, key: K) -> None:
        """Reset a key's back-off after a success."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.failures = 0
            entry.not_before = 0.0

    def rest(self, key: K, seconds: float) -> None:
        """Hold a key that a worker handles for that many seconds, except for urgent adds. Call before
        `done`.

        The hold applies only if the key is added again before `done`.
        """
        entry = self._entries.get(key)
        if entry is not None and not entry.news:
            entry.not_before = self._now() + seconds
            if entry.due is not None:
                entry.due = max(entry.due, entry.not_before)

    @property
    def depth(self) -> int:
        """Number of keys that wait for a worker."""
        return len(self._high) + len(self._low)

    def __contains__(self, key: K) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.due is not None

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _schedule(self, key: K, entry: _Entry) -> None:
        """Queue a key that is neither ready nor running, or put it on the heap until it is due."""
        if entry.due is None:
            return
        if entry.due <= self._now():
            self._line_up(key, entry)
            self._wake()
            return
        if len(self._heap) > 2 * len(self._entries) + 64:
            self._compact()
        heapq.heappush(self._heap, (entry.due, next(self._order), key))
        if self._heap[0][2] == key:
            self._arm()

    def _line_up(self, key: K, entry: _Entry) -> None:
        entry.ready = True
        entry.ready_at = self._now()
        (self._high if entry.high else self._low).append(key)

    def _release(self, now: float) -> None:
        """Move the keys that became due from the heap to the queue."""
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            entry = self._entries.get(key)
            # A key whose due time changed leaves a stale heap entry, recognised by its old time.
            if entry is not None and entry.due == due and not entry.ready and not entry.running:
                self._line_up(key, entry)

    def _compact(self) -> None:
        """Remove the heap's stale entries: a key that is added often would leave one for each of its far
        due times.
        """
        self._heap = [
            (entry.due, next(self._order), key)
            for key, entry in self._entries.items()
            if entry.due is not None and not entry.ready and not entry.running
        ]
        heapq.heapify(self._heap)

    def _pop(self) -> K | None:
        self._popped += 1
        lines = (self._low, self._high) if self._popped % _FAIRNESS == 0 else (self._high, self._low)
        for line in lines:
            if line:
                return line.popleft()
        self._popped -= 1
        return None

    def _arm(self) -> None:
        """Set the single timer to the earliest time on the heap."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            self._armed_at = self._heap[0][0]
            self._timer = asyncio.get_running_loop().call_at(self._armed_at, self._fire)

    def _fire(self) -> None:
        # The clock may be slightly before the time of the timer. A worker may already have handled what was
        # due, so the next entry of the heap may be due much later.
        self._release(max(self._now(), self._armed_at))
        for _ in range(self.depth):
            self._wake()
        self._timer = None
        self._arm()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
