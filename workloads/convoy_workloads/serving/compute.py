"""The compute thread: it admits work to the engine, runs the engine's iterations and hands the results to the
event loop. It alone calls the engine.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from convoy_workloads.runtime.heartbeat import HeartbeatWriter
from convoy_workloads.runtime.log import log_line
from convoy_workloads.runtime.process_exit import print_error
from convoy_workloads.serving.extensions import ManyModels
from convoy_workloads.serving.lifecycle import Lifecycle
from convoy_workloads.serving.metrics import Metrics
from convoy_workloads.serving.protocol import Engine, ModelCard, Usage
from convoy_workloads.serving.work_item import CANCELLED, DEADLINE, ERROR, Delta, WorkItem

IDLE_SECONDS = 0.25
"""Seconds between two heartbeats without a request."""
FRONT_SECONDS = 5.0
"""Seconds without a sign of life of the event loop after which the heartbeat stops, because nobody can then
reach the engine.
"""
FRONT_BEAT_SECONDS = 0.25
"""Seconds between two signs of life of the event loop."""


T = TypeVar("T")


class Unavailable(Exception):
    """Raised if the thread calls no function, because the model is loading or the replica has ended."""


class QueueFull(Exception):
    """Raised if a request finds more waiting requests than the queue may hold."""


class ComputeLoop:
    """The compute thread and its queue."""

    def __init__(
        self,
        engine: Engine[Any, Any],
        heartbeat: HeartbeatWriter,
        lifecycle: Lifecycle,
        metrics: Metrics,
        queue_limit: int,
    ) -> None:
        """`queue_limit`: maximum number of work items that wait for admission."""
        self.card: ModelCard | None = None
        """The loaded model; None before the first load has ended."""
        self.error: BaseException | None = None
        """The error that has ended the thread; None if there is none."""
        self._engine = engine
        self._heartbeat = heartbeat
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._queue_limit = queue_limit
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._waiting: deque[WorkItem] = deque()
        self._leaving: list[WorkItem] = []
        """Work items that must be cancelled."""
        self._running: dict[int, WorkItem] = {}
        self._reload: list[asyncio.Future[ModelCard]] = []
        self._calls: list[tuple[Callable[[], Any], Future[Any]]] = []
        """Functions to call between two iterations."""
        self._stopping = False
        self._over = False
        """True if the thread calls no further function."""
        self._front_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="convoy-compute", daemon=True)
        self.ended = asyncio.Event()
        """Set when the thread has ended."""

    # The following methods run on the event loop.

    def start(self) -> None:
        """Start the thread. It loads the model first."""
        self._show_alive()
        self._thread.start()

    def submit(self, items: Iterable[WorkItem]) -> None:
        """Queue the work items of one request. Raises QueueFull if they do not fit into the queue."""
        added = list(items)
        now = time.monotonic()
        with self._changed:
            if len(self._waiting) + len(added) > self._queue_limit:
                raise QueueFull
            for one in added:
                one.submitted_at = now
            self._waiting.extend(added)
            self._changed.notify()

    def cancel(self, items: Iterable[WorkItem]) -> None:
        """Stop work items whose client has left. An ended one is ignored."""
        with self._changed:
            self._leaving.extend(items)
            self._changed.notify()

    async def reload(self) -> ModelCard:
        """Load the model again when the running work items have ended. Raises ModelError or SelfTestFailed
        if that fails; the process then ends.
        """
        done: asyncio.Future[ModelCard] = self._loop.create_future()
        with self._changed:
            self._reload.append(done)
            self._changed.notify()
        return await done

    async def call(self, function: Callable[[], T]) -> T:
        """Call a function in the thread, between two iterations. Return its result, or raise its error.
        Raises Unavailable if the model is not loaded or the replica ends.
        """
        done: Future[T] = Future()
        with self._changed:
            if self._over or self.card is None:
                raise Unavailable(self._lifecycle.reason)
            self._calls.append((function, done))
            self._changed.notify()
        return await asyncio.wrap_future(done)

    @property
    def cards(self) -> Mapping[str, ModelCard]:
        """Return the models by name; none before the first load has ended."""
        if self.card is None:
            return {}
        return self._engine.cards() if isinstance(self._engine, ManyModels) else {self.card.name: self.card}

    @property
    def pending(self) -> int:
        """Number of work items that wait or run."""
        return len(self._waiting) + len(self._running)

    @property
    def waiting(self) -> int:
        """Number of work items that wait for admission."""
        return len(self._waiting)

    def usage(self) -> Usage:
        """Return the engine's use of its resources."""
        return self._engine.usage()

    def stop(self) -> None:
        """End the thread. Work items that still run end with the reason `CANCELLED`."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def _show_alive(self) -> None:
        self._front_at = time.monotonic()
        if not self.ended.is_set():
            self._loop.call_later(FRONT_BEAT_SECONDS, self._show_alive)

    # The following methods run in the thread.

    def _run(self) -> None:
        try:
            self._load()
            while not self._stopping:
                self._iterate()
            # The launcher reads from the last heartbeat that the rank has drained.
            self._beat()
            self._end_all(CANCELLED, "this replica has ended")
        except BaseException as error:  # The thread must never die without a word.
            self.error = error
            print_error(error)
            self._lifecycle.fail(f"the engine has failed: {type(error).__name__}: {error}")
            self._end_all(ERROR, self._lifecycle.reason)
        finally:
            self._engine.close()
            self._loop.call_soon_threadsafe(self.ended.set)

    def _load(self) -> None:
        started_at = time.monotonic()
        self._heartbeat.start()
        card = self._engine.load(self._heartbeat.touch)
        self._heartbeat.touch()
        self._engine.self_test()
        self.card = card
        self._lifecycle.serving()
        self._beat()
        seconds = time.monotonic() - started_at
        log_line(f"serves {card.name}: {card.source}; loaded and tested in {seconds:.2f} s")

    def _iterate(self) -> None:
        self._beat()
        with self._changed:
            busy = self._waiting or self._leaving or self._running or self._reload or self._calls
            if not (busy or self._stopping):
                self._changed.wait(IDLE_SECONDS)
            leaving, self._leaving = self._leaving, []
            calls, self._calls = self._calls, []
        for function, done in calls:
            _call(function, done)
        posts: list[tuple[WorkItem, Delta]] = []
        for one in leaving:
            self._drop(one, CANCELLED, "the client has left", posts)
        if self._reload and not self._running:
            self._load_again()
        if not self._reload:
            self._admit(posts)
        now = time.monotonic()
        for one in [one for one in self._running.values() if one.deadline <= now]:
            self._drop(one, DEADLINE, "the request's deadline has passed", posts)
        if self._running:
            results = self._engine.step()
            self._metrics.computed(time.monotonic() - now)
            self._distribute(results, posts)
        else:
            self._engine.idle()
        if posts:
            self._loop.call_soon_threadsafe(_deliver, posts)

    def _beat(self) -> None:
        """Renew the heartbeat, unless the event loop hangs."""
        if time.monotonic() - self._front_at > FRONT_SECONDS:
            return
        if self._lifecycle.ending:
            self._heartbeat.drain()
        elif self._lifecycle.ready:
            self._heartbeat.serve()
        else:
            self._heartbeat.touch()

    def _admit(self, posts: list[tuple[WorkItem, Delta]]) -> None:
        now = time.monotonic()
        with self._changed:
            late = [one for one in self._waiting if one.deadline <= now]
        for one in late:
            self._drop(one, DEADLINE, "the request's deadline passed in the queue", posts)
        while self._waiting:
            one = self._waiting[0]
            if not self._engine.admit(one.payload):
                if self._running:
                    return
                raise RuntimeError(f"an empty engine does not admit request {one.payload.id}")
            self._waiting.popleft()
            one.admitted_at = now
            self._running[one.payload.id] = one
            self._metrics.admitted(now - one.submitted_at, one.prompt_tokens)

    def _distribute(self, results: Sequence[Any], posts: list[tuple[WorkItem, Delta]]) -> None:
        now = time.monotonic()
        for result in results:
            one = self._running.get(result.sequence)
            if one is None:
                continue
            delta = one.accept(result)
            one.measure(self._metrics, now)
            if one.ended:
                self._remove(one)
                self._metrics.ended(delta.finish if delta else ERROR, now - one.submitted_at, one.reused)
            if delta is not None:
                posts.append((one, delta))

    def _drop(self, one: WorkItem, reason: str, message: str, posts: list[tuple[WorkItem, Delta]]) -> None:
        """End a work item before its time."""
        if one.ended:
            return
        delta = one.end(reason, message=message)
        if one.payload.id in self._running:
            self._remove(one)
        else:
            with self._changed:
                self._waiting.remove(one)
        self._metrics.ended(reason, time.monotonic() - one.submitted_at, one.reused)
        posts.append((one, delta))

    def _remove(self, one: WorkItem) -> None:
        if self._running.pop(one.payload.id, None) is not None:
            self._engine.cancel(one.payload.id)

    def _load_again(self) -> None:
        self._lifecycle.loading()
        self._load()
        waiting, self._reload = self._reload, []
        card = self.card
        for one in waiting:
            self._loop.call_soon_threadsafe(_resolve, one, card)

    def _end_all(self, reason: str, message: str) -> None:
        posts: list[tuple[WorkItem, Delta]] = []
        with self._changed:
            left = [*self._running.values(), *self._waiting]
            self._waiting.clear()
            self._over = True
            calls, self._calls = self._calls, []
        for _, done in calls:
            done.set_exception(Unavailable("this replica has ended"))
        for one in left:
            if not one.ended:
                posts.append((one, one.end(reason, message=message)))
                self._metrics.ended(reason, time.monotonic() - one.submitted_at, one.reused)
        self._running.clear()
        error = self.error
        for future in self._reload:
            self._loop.call_soon_threadsafe(_resolve, future, error)
        self._loop.call_soon_threadsafe(_deliver, posts)


def _call(function: Callable[[], T], done: Future[T]) -> None:
    if not done.set_running_or_notify_cancel():
        return
    try:
        done.set_result(function())
    except Exception as error:  # The caller gets it.
        done.set_exception(error)


def _deliver(posts: list[tuple[WorkItem, Delta]]) -> None:
    for one, delta in posts:
        one.sink(one.choice, delta)


def _resolve(future: asyncio.Future[ModelCard], result: ModelCard | BaseException | None) -> None:
    if future.done():
        return
    if isinstance(result, ModelCard):
        future.set_result(result)
    else:
        future.set_exception(result or RuntimeError("this replica has ended"))
