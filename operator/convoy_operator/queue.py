"""The work queue: the keys of the objects to reconcile. Each key is queued at most once, and only one
worker handles a key at a time.

A key has at most one due time. Adding the key again can only make it due earlier. A key that becomes due
while a worker handles it waits until the worker is done. After a failure, the key waits for its back-off.
Urgent changes, such as a new spec or an exit, end the back-off; changes of children do not.
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
"""Every eighth key is taken from the low-priority queue, if that queue is not empty. So low-priority keys
do not starve if high-priority keys always wait.
"""


@dataclass(slots=True)
class _Entry:
    """The queue's state of one key."""

    due: float | None = None
    """Time at which a worker must start to handle the key; None if the key need not be handled."""
    high: bool = False
    """True if the key has high priority. Changed objects have high priority, periodic reconciles have low
    priority.
    """
    ready: bool = False
    """True if the key is due and waits for a worker."""
    ready_at: float = 0.0
    running: bool = False
    news: bool = False
    """True if an urgent change came while a worker handled the key."""
    failures: int = 0
    not_before: float = 0.0
    """Time when the key's back-off ends."""


@dataclass(slots=True)
class WorkQueue(Generic[K]):
    """The work queue; the module's docstring describes it. Times are seconds of the event loop's clock. A
    key has one entry however often it is added, so the number of objects limits the size.
    """

    min_backoff: float = 0.5
    """Minimum back-off in seconds."""
    max_backoff: float = 60.0
    """Maximum back-off in seconds."""
    rng: random.Random = field(default_factory=random.Random)
    on_wait: Callable[[float], None] = lambda seconds: None
    """Function to call with the seconds that each key waited for a worker."""
    open: bool = True
    """True if keys are accepted. The queue of a replica without workers is closed, because its keys would
    wait forever.
    """
    _entries: dict[K, _Entry] = field(default_factory=dict)
    _heap: list[tuple[float, int, K]] = field(default_factory=list)
    _order: itertools.count[int] = field(default_factory=itertools.count)
    _high: deque[K] = field(default_factory=deque)
    _low: deque[K] = field(default_factory=deque)
    _waiters: deque[asyncio.Future[None]] = field(default_factory=deque)
    _timer: asyncio.TimerHandle | None = None
    _armed_at: float = 0.0
    """The time at which `_timer` fires."""
    _popped: int = 0

    def add(self, key: K, delay: float = 0.0, *, high: bool = True) -> None:
        """Schedule a reconcile of `key` within `delay` seconds.

        A delay of 0 with high priority is urgent and ends the key's back-off. `high` is False for periodic
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
        """Wait for a due key and return it. The caller must call `done` with the key."""
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
                    # Other keys are due too. Wake another waiter: these keys have left the heap, so the timer
                    # will not wake a waiter for them.
                    self._wake()
                return key
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                # This waiter was woken before it was cancelled, so wake another one instead.
                if waiter.done() and not waiter.cancelled():
                    self._wake()
                raise
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def done(self, key: K) -> None:
        """Record that the worker has finished `key`. If the key became due during its work, schedule it
        again.
        """
        entry = self._entries[key]
        entry.running = False
        if entry.due is not None:
            self._schedule(key, entry)
        elif entry.failures == 0:
            del self._entries[key]

    def retry(self, key: K) -> float:
        """Schedule a key again after a failure. Return the seconds of its back-off. The caller must call
        this before `done`.
        """
        entry = self._entries.setdefault(key, _Entry())
        wait = backoff(entry.failures, self.min_backoff, self.max_backoff, self.rng)
        entry.failures += 1
        if entry.news:
            # Retry at once: the failed attempt may have read the object before the urgent change.
            return 0.0
        entry.not_before = self._now() + wait
        entry.due = entry.not_before
        if not entry.running and not entry.ready:
            self._schedule(key, entry)
        return wait

    def reset_backoff(self, key: K) -> None:
        """End the back-off of a key after a successful reconcile, so that the next failure starts with the
        minimum back-off.
        """
        entry = self._entries.get(key)
        if entry is not None:
            entry.failures = 0
            entry.not_before = 0.0

    def rest(self, key: K, seconds: float) -> None:
        """Delay the next reconcile of the key that the caller is handling: it starts in `seconds` seconds
        at the earliest. Urgent changes end the delay. The caller must call this before `done`.

        If the key is not added again before `done`, the delay has no effect.
        """
        entry = self._entries.get(key)
        if entry is not None and not entry.news:
            entry.not_before = self._now() + seconds
            if entry.due is not None:
                entry.due = max(entry.due, entry.not_before)

    @property
    def depth(self) -> int:
        """Return the number of keys that wait for a worker."""
        return len(self._high) + len(self._low)

    def __contains__(self, key: K) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.due is not None

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _schedule(self, key: K, entry: _Entry) -> None:
        """Put a key into the queue if it is due, else on the heap. The key must not be ready or running."""
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
        """Move the keys that have become due from the heap to the queue."""
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            entry = self._entries.get(key)
            # Skip a stale heap entry: if a key's due time changes, its old entry stays on the heap.
            if entry is not None and entry.due == due and not entry.ready and not entry.running:
                self._line_up(key, entry)

    def _compact(self) -> None:
        """Remove stale entries from the heap. Each time that a key becomes due earlier, its old entry stays
        on the heap until the old due time.
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
        """Set the timer to the earliest due time on the heap."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            self._armed_at = self._heap[0][0]
            self._timer = asyncio.get_running_loop().call_at(self._armed_at, self._fire)

    def _fire(self) -> None:
        # The timer may fire slightly early, when the clock has not reached `_armed_at`. So pass at least
        # `_armed_at`. Otherwise the due key would wait for the next timer, which may fire much later.
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
