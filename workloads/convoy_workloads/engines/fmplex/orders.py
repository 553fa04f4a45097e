"""The orders in which requests are served: fair, first come first served, and one task at a time. The last
two are baselines of the bench. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from convoy_workloads.engines.fmplex.fair_queue import FairQueue
from convoy_workloads.engines.fmplex.task_queue import Item, TaskQueue

Order = Literal["Fair", "Arrival", "PerTask"]


class ArrivalQueue(TaskQueue):
    """First come, first served: the oldest item decides the key, and the oldest items with this key join."""

    def next_batch(self) -> list[Item]:
        """Remove and return the oldest items."""
        oldest = self.oldest()
        if oldest is None:
            return []
        batch: list[Item] = []
        while len(batch) < self.batch_max:
            heads = [flow for flow in self.flows() if oldest.key in flow.queues]
            if not heads:
                break
            batch.append(min(heads, key=lambda flow: flow.queues[oldest.key][0].at).pop(oldest.key))
        self.charge(batch)
        return batch


class PerTaskQueue(TaskQueue):
    """The tasks in turn. A batch has requests of one task only."""

    _last = -1

    def next_batch(self) -> list[Item]:
        """Remove and return the oldest items of the next task."""
        backlogged = list(self.backlogged())
        if not backlogged:
            return []
        flow = min(backlogged, key=lambda one: (one.number <= self._last, one.number))
        self._last = flow.number
        key = flow.oldest().key
        batch: list[Item] = []
        while key in flow.queues and len(batch) < self.batch_max:
            batch.append(flow.pop(key))
        self.charge(batch)
        return batch


ORDERS: Mapping[Order, type[TaskQueue]] = {
    "Fair": FairQueue,
    "Arrival": ArrivalQueue,
    "PerTask": PerTaskQueue,
}
