"""The work queue: keys of objects to reconcile, each at most once, never two workers on one.

A key has at most one time at which it is due; adding it again can only bring that forward. A key that
becomes due while a worker has it waits until the worker is done. After failures a key waits for its back-
off: news of children does not cut that short, urgent news (a spec change, an exit) does.
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
"""Every so many keys one of the low priority goes first, however many of the high one wait."""


@dataclass(slots=True)
class _Entry:
    """Everything the queue knows of one key."""

    due: float | None = None
    """When it wants a worker; None when it does not."""
    high: bool = False
    """Its priority: what changed goes before what is only looked at again."""
    ready: bool = False
    """Due and in line."""
    ready_at: float = 0.0
    running: bool = False
    news: bool = False
    """Something urgent came while a worker had it."""
    failures: int = 0
    not_before: float = 0.0
    """End of its back-off."""


@dataclass(slots=True)
class WorkQueue(Generic[K]):
    """See the module. Times are the event loop's; bounded by the number of objects, as equal keys are one."""

    least: float = 0.5
    """Seconds of the first back-off."""
    most: float = 60.0
    """Seconds of the longest back-off."""
    rng: random.Random = field(default_factory=random.Random)
    on_wait: Callable[[float], None] = lambda seconds: None
    """Told how long each key stood in line, in seconds."""
    open: bool = True
    """Whether keys are taken. Those of one that has no workers yet would stand there for ever."""
    _entries: dict[K, _Entry] = field(default_factory=dict)
    _heap: list[tuple[float, int, K]] = field(default_factory=list)
    _order: itertools.count[int] = field(default_factory=itertools.count)
    _high: deque[K] = field(default_factory=deque)
    _low: deque[K] = field(default_factory=deque)
    _waiters: deque[asyncio.Future[None]] = field(default_factory=deque)
    _timer: asyncio.TimerHandle | None = None
    _armed_at: float = 0.0
    """The time that the timer is set for."""
    _popped: int = 0

    def add(self, key: K, delay: float = 0.0, *, high: bool = True) -> None:
        """Wants `key` reconciled within `delay` seconds.

        A delay of 0 with high priority is urgent: it overrides a back-off. `high=False` is for keys that are
        merely looked at again. A queue that is not open takes nothing.
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
        """The next key due; the caller must call `done` for it. Waits while there is none."""
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
                    # Released here, before the timer: one that is set anew would wake nobody for them.
                    self._wake()
                return key
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                # A wake-up that came with the cancellation belongs to somebody else.
                if waiter.done() and not waiter.cancelled():
                    self._wake()
                raise
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def done(self, key: K) -> None:
        """The worker has finished with `key`; if it became due meanwhile, it is due once more."""
        entry = self._entries[key]
        entry.running = False
        if entry.due is not None:
            self._schedule(key, entry)
        elif entry.failures == 0:
            del self._entries[key]

    def retry(self, key: K) -> float:
        """After a failure: due again when its back-off is over; seconds until then. Call before `done`."""
        entry = self._entries.setdefault(key, _Entry())
        wait = backoff(entry.failures, self.least, self.most, self.rng)
        entry.failures += 1
        if entry.news:
            # The try that failed may not have seen it.
            return 0.0
        entry.not_before = self._now() + wait
        entry.due = entry.not_before
        if not entry.running and not entry.ready:
            self._schedule(key, entry)
        return wait

    def reset_backoff(self, key: K) -> None:
        """After a success: the next failure waits the shortest time again."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.failures = 0
            entry.not_before = 0.0

    def rest(self, key: K, seconds: float) -> None:
        """Hold a key that a worker has for so many seconds, but for urgent news. Call before `done`.

        A key rests only if it is added again before `done`, as keys are that are due at some later time.
        """
        entry = self._entries.get(key)
        if entry is not None and not entry.news:
            entry.not_before = self._now() + seconds
            if entry.due is not None:
                entry.due = max(entry.due, entry.not_before)

    @property
    def depth(self) -> int:
        """Keys in line for a worker."""
        return len(self._high) + len(self._low)

    def __contains__(self, key: K) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.due is not None

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _schedule(self, key: K, entry: _Entry) -> None:
        """Puts a key that is neither ready nor running in line, or on the heap until it is due."""
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
        """Moves what has become due from the heap into the line."""
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            entry = self._entries.get(key)
            # A key whose time moved leaves its old entry in the heap, known by the time it no longer has.
            if entry is not None and entry.due == due and not entry.ready and not entry.running:
                self._line_up(key, entry)

    def _compact(self) -> None:
        """Drops the stale entries of the heap: keys looked at often would leave one of each far deadline."""
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
        """Sets the one timer to the earliest time on the heap."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            self._armed_at = self._heap[0][0]
            self._timer = asyncio.get_running_loop().call_at(self._armed_at, self._fire)

    def _fire(self) -> None:
        # The clock may be a hair short of the time the timer was set for. A worker may have taken what was
        # due then: what is first on the heap may be due much later.
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
