"""Batch-aware fair queueing: start-time fair queueing in which tasks share batches. Pure.

Each task i has a weight w_i and a start tag S_i, the start tag of its next request. Virtual time V is the
start tag of the first request of the last batch.

- A task that becomes backlogged continues at max(V, S_i). So an idle task earns no credit.
- A batch starts with the task with the smallest tag, and this task's oldest request decides the batch's key:
  backbone and length. Then requests with this key join in the order of their tasks' tags, across all tasks.
- A batch of b requests costs T(b). Each request is charged T(b) / b, and S_i grows by the charge / w_i.

So the tags of backlogged tasks stay close together, and each task gets compute time in proportion to its
weight. Tags are in seconds of compute time.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable

from convoy_workloads.engines.fmplex.task_queue import Flow, Item, TaskQueue


class FairQueue(TaskQueue):
    """Batch-aware fair queueing."""

    def next_batch(self) -> list[Item]:
        """Remove and return the items of the next batch, and charge their tasks. The list is empty if no item
        waits.
        """
        first = min(self.backlogged(), key=_rank, default=None)
        if first is None:
            return []
        self.virtual_time = max(self.virtual_time, first.tag)
        key = first.oldest().key
        batch = self._fill(key)
        if not any(self.backlogged()):
            # The busy period ends. All tasks start the next one with equal tags.
            self.virtual_time = max(flow.tag for flow in self.flows())
        return batch

    def _fill(self, key: Hashable) -> list[Item]:
        whole = self.cost(key, self.batch_max)
        share = whole / self.batch_max
        # A task may join ahead of tasks that wait for a batch with another key, but not by more than a batch.
        others = (flow.tag for flow in self.backlogged() if len(flow.queues) > 1 or key not in flow.queues)
        limit = min(others, default=math.inf)
        heap = [(*_rank(flow), flow) for flow in self.backlogged() if flow.may_join(key, self.batch_max)]
        heapq.heapify(heap)
        batch: list[Item] = []
        while heap and len(batch) < self.batch_max:
            *_, flow = heapq.heappop(heap)
            if flow.tag > limit + whole / flow.weight:
                continue
            batch.append(flow.pop(key))
            flow.tag += share / flow.weight
            if flow.may_join(key, self.batch_max):
                heapq.heappush(heap, (*_rank(flow), flow))
        self.charge(batch, share)
        return batch


def _rank(flow: Flow) -> tuple[float, int]:
    return flow.tag, flow.number
