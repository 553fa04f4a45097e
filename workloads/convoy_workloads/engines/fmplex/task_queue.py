"""The waiting rows of a pod's tasks, and the compute time that each task was charged. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field

Cost = Callable[[Hashable, int], float]
"""A function that returns the seconds T(b) of a batch, given its key and its size. T(b) / b must not grow
with b.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One row of a request. It waits for a place in a batch."""

    task: str
    key: Hashable
    """Items of one batch have equal keys."""
    call: int
    """Id of the request."""
    row: int
    """Number of the row in the request."""
    at: float
    """Time of arrival, in seconds of the monotonic clock."""


@dataclass(slots=True, eq=False)
class Flow:
    """The waiting items of one task, and its account."""

    task: str
    weight: float
    number: int
    """Position among the tasks, for the order of equal tags."""
    tag: float = 0.0
    """Start tag of the next item."""
    service: float = 0.0
    """Seconds of compute time that the task was charged."""
    waiting: int = 0
    queues: dict[Hashable, deque[Item]] = field(default_factory=dict)
    """The waiting items by key, in the order of their arrival. No queue is empty."""
    overtaken: int = 0
    """Number of items that were served before the task's oldest item, since it became the oldest."""

    def oldest(self) -> Item:
        """Return the item that has waited longest."""
        return min((queue[0] for queue in self.queues.values()), key=_arrival)

    def add(self, item: Item) -> None:
        """Add an item to the end of its queue."""
        self.queues.setdefault(item.key, deque()).append(item)
        self.waiting += 1

    def may_join(self, key: Hashable, most: int) -> bool:
        """Return True if the task has an item for a batch with this key. At most `most` items overtake the
        task's oldest item.
        """
        return key in self.queues and (self.overtaken < most or self.oldest().key == key)

    def pop(self, key: Hashable) -> Item:
        """Remove and return the oldest item with this key."""
        queue = self.queues[key]
        first = self.oldest() is queue[0]
        item = queue.popleft()
        if not queue:
            del self.queues[key]
        self.waiting -= 1
        self.overtaken = 0 if first else self.overtaken + 1
        return item

    def drop(self, call: int) -> int:
        """Remove the items of a request. Return their number."""
        before = self.waiting
        for key, queue in list(self.queues.items()):
            left = deque(item for item in queue if item.call != call)
            self.waiting -= len(queue) - len(left)
            if left:
                self.queues[key] = left
            else:
                del self.queues[key]
        dropped = before - self.waiting
        if dropped:
            self.overtaken = 0
        return dropped


class TaskQueue:
    """The queues of all tasks of a pod. Subclasses decide the order."""

    def __init__(self, batch_max: int, cost: Cost) -> None:
        """`batch_max`: maximum number of items of a batch."""
        self.virtual_time = 0.0
        self.batch_max = batch_max
        self.cost = cost
        self._flows: dict[str, Flow] = {}
        self._attached = 0

    def attach(self, task: str, weight: float) -> None:
        """Add a task. Raises ValueError if its weight is not positive, or if it exists."""
        if task in self._flows:
            raise ValueError(f"task {task!r} exists")
        self._flows[task] = Flow(task, _checked(weight), self._attached)
        self._attached += 1

    def detach(self, task: str) -> None:
        """Remove a task. Raises ValueError if items of it wait."""
        if self._flows[task].waiting:
            raise ValueError(f"items of task {task!r} wait")
        del self._flows[task]

    def set_weight(self, task: str, weight: float) -> None:
        """Change the weight of a task for all items that are charged from now on."""
        self._flows[task].weight = _checked(weight)

    def flow(self, task: str) -> Flow:
        """Return the account of a task."""
        return self._flows[task]

    def waiting(self, task: str | None = None) -> int:
        """Return the number of waiting items of a task, or of all tasks."""
        if task is not None:
            return self._flows[task].waiting
        return sum(flow.waiting for flow in self._flows.values())

    def oldest(self) -> Item | None:
        """Return the item that has waited longest; None if no item waits."""
        return min((flow.oldest() for flow in self.backlogged()), key=_arrival, default=None)

    def add(self, item: Item) -> None:
        """Add an item to its task's queue."""
        flow = self._flows[item.task]
        if not flow.waiting:
            flow.tag = max(self.virtual_time, flow.tag)
        flow.add(item)

    def drop(self, task: str, call: int) -> int:
        """Remove the waiting items of a request. Return their number."""
        return self._flows[task].drop(call)

    def next_batch(self) -> list[Item]:
        """Remove and return the items of the next batch, and charge their tasks. The list is empty if no item
        waits.
        """
        raise NotImplementedError

    def charge(self, batch: list[Item], estimate: float = 0.0) -> None:
        """Charge each item of a batch its share. The tags have grown by the estimate already."""
        share = self.cost(batch[0].key, len(batch)) / len(batch)
        for item in batch:
            flow = self._flows[item.task]
            flow.service += share
            flow.tag += (share - estimate) / flow.weight

    def flows(self) -> Iterable[Flow]:
        """Return the accounts of all tasks."""
        return self._flows.values()

    def backlogged(self) -> Iterator[Flow]:
        """Return the accounts of the tasks with waiting items."""
        return (flow for flow in self._flows.values() if flow.waiting)


def _arrival(item: Item) -> tuple[float, int, int]:
    return item.at, item.call, item.row


def _checked(weight: float) -> float:
    if not 0 < weight < math.inf:
        raise ValueError(f"weight must be above 0, is {weight:g}")
    return weight
