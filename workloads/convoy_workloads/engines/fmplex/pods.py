"""The pods of a replica as rank 0 sees them: each has a queue, a fit of its costs, and a host."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from convoy_workloads.engines.fmplex.cost_model import CostModel
from convoy_workloads.engines.fmplex.forms import Form, Row
from convoy_workloads.engines.fmplex.host import Host
from convoy_workloads.engines.fmplex.orders import ORDERS, Order
from convoy_workloads.engines.fmplex.params import Backbone
from convoy_workloads.engines.fmplex.task_queue import Item
from convoy_workloads.serving.renewing import RENEW_SECONDS

IDLE_SECONDS = 1.0
"""Seconds without a message after which another pod gets one."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BatchKey:
    """Rows with equal keys may share a batch."""

    digest: str
    """Digest of the backbone."""
    length: int
    """Length to which the rows are padded."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one batch, and the slots of their adapters."""

    items: Sequence[Item]
    backbone: Backbone
    form: Form
    rows: list[Row]
    slots: list[int]

    @property
    def length(self) -> int:
        """Return the length to which the rows are padded."""
        key = self.items[0].key
        assert isinstance(key, BatchKey)  # noqa: S101 - items of this engine have no other keys
        return key.length


@dataclass(frozen=True, slots=True)
class Computed:
    """The features of a batch."""

    batch: Batch
    features_BC: Tensor
    seconds: float


class Pod:
    """One pod. It computes one batch at a time."""

    def __init__(self, host: Host, order: Order, batch_max: int, remote: bool) -> None:
        """`remote`: True to use the host in a thread of its own, because it waits for another pod."""
        self.host = host
        self.costs = CostModel()
        self.queue = ORDERS[order](batch_max, self._cost)
        self.padded: set[str] = set()
        """Digests of the backbones whose batches all get the maximum number of rows."""
        self.calls = 0
        """Number of requests with rows in the batch that is computed."""
        self._thread = ThreadPoolExecutor(1, "convoy-pod") if remote else None
        self.running: Future[Computed] | None = None
        """The batch that another pod computes."""
        self._idling: Future[None] | None = None
        self._used_at = 0.0
        """Monotonic time of the last use of the host."""

    def compute(self, batch: Batch) -> Computed:
        """Return the features of a batch."""
        started_at = time.perf_counter()
        packed = batch.form.pack(batch.rows, batch.length)
        slots = torch.tensor(batch.slots)
        if batch.backbone.digest in self.padded:
            packed, slots = _padded(packed, self.queue.batch_max), _padded(slots, self.queue.batch_max)
        features = self.host.features(batch.backbone, packed, slots)[: len(batch.rows)]
        return Computed(batch, features, time.perf_counter() - started_at)

    def start(self, batch: Batch) -> None:
        """Let another pod compute a batch, without waiting for it."""
        assert self._thread is not None  # noqa: S101 - the local pod computes in the caller's thread
        self.calls = len({item.call for item in batch.items})
        self._used_at = time.monotonic()
        self.running = self._thread.submit(self.compute, batch)

    def finished(self) -> Computed | None:
        """Return the batch that another pod has computed since the last call; None if it has not. Raises the
        pod's error.
        """
        if self.running is None or not self.running.done():
            return None
        done, self.running, self.calls = self.running, None, 0
        return done.result()

    def discard(self) -> None:
        """Wait until another pod has computed its batch, and drop the result."""
        if self.running is not None:
            wait([self.running])
            self.finished()

    def call(self, function: Callable[[], T], renew: Callable[[], None]) -> T:
        """Use the host between two batches. `renew` is called as long as the host needs. Return the
        result.
        """
        if self._thread is None:
            return function()
        self._used_at = time.monotonic()
        done = self._thread.submit(function)
        while not done.done():
            wait([done], RENEW_SECONDS)
            renew()
        return done.result()

    def idle(self) -> None:
        """Show another pod that this rank is alive, unless it was used within the last second. Raises the
        error of the last try.
        """
        now = time.monotonic()
        if self._thread is None or self.running is not None or now - self._used_at < IDLE_SECONDS:
            return
        if self._idling is not None:
            if not self._idling.done():
                return
            self._idling.result()
        self._used_at = now
        self._idling = self._thread.submit(self.host.idle)

    def close(self) -> None:
        """Let another pod end."""
        if self._thread is not None:
            self._thread.submit(self.host.close)
            self._thread.shutdown(wait=True)

    def _cost(self, key: Hashable, size: int) -> float:
        return self.costs.cost(key, size)


def _padded(rows: Tensor, count: int) -> Tensor:
    """Return the rows, and the first of them repeated, `count` in all."""
    return torch.cat([rows, rows[:1].expand(count - rows.shape[0], *rows.shape[1:])])
