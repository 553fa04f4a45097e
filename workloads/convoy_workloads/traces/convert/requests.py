"""Requests: the operators of c10d that asked for a kernel of NCCL, where the kernel itself does not show it.

NCCL runs an all-to-all, and a batch of sends and receives, as one kernel named SendRecv. torch names no
collective for batches, and old versions name none at all. Then the operators of the thread that launched the
kernel show it:

- an operator that contains the launch asked for the kernel;
- otherwise the sends and receives since the launch before are a batch, which the kernel runs at its end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable

from convoy_workloads.traces.convert.kinds import kind_named
from convoy_workloads.traces.torch_json.kineto import DEVICE, Event
from convoy_workloads.traces.trace import NodeType

MAX_BATCH = 256
"""Sends and receives of one kernel. Each node after the batch depends on all of them."""
_NAMES = ("c10d::", "nccl:")
_NESTED = 4
"""Operators among which the one around a launch is: c10d's operator contains the annotation of NCCL."""
_MESSAGES = frozenset({NodeType.SEND, NodeType.RECV})


class Requests:
    """Each thread's c10d operators, and the launches of NCCL kernels.

    `launches` are those of all such kernels, `taken` operators that asked for something else.
    """

    def __init__(self, events: Iterable[Event], launches: Iterable[Event], taken: Iterable[Event]) -> None:
        self._operators = defaultdict[str, list[Event]](list)
        others = set(taken)
        for event in events:
            if event.category not in DEVICE and event.name.startswith(_NAMES) and event not in others:
                self._operators[event.lane].append(event)
        self._starts = {lane: [one.start for one in ones] for lane, ones in self._operators.items()}
        self._launches = defaultdict[str, list[int]](list)
        for launch in sorted(launches, key=lambda one: one.start):
            self._launches[launch.lane].append(launch.start)

    def of(self, launch: Event) -> list[Event]:
        """Return the operators that asked for the kernel of a launch; none if they are unknown."""
        operators, starts = self._operators.get(launch.lane, []), self._starts.get(launch.lane, [])
        launches = self._launches[launch.lane]
        place = bisect_left(launches, launch.start)
        since = launches[place - 1] if place else 0
        last = bisect_right(starts, launch.start)
        near = operators[max(last - _NESTED, 0) : last]
        around = [one for one in near if one.end >= launch.end and kind_named(one.name) is not None]
        if around:
            # The outer one is the operator of c10d, the inner one the annotation of NCCL.
            return around[:1]
        # An operator that contains the launch before asked for that one.
        recent = operators[bisect_right(starts, since) : last]
        batch = [one for one in recent if one.end <= launch.start and one.name.startswith("c10d::")]
        named = all(kind_named(one.name) in _MESSAGES for one in batch)
        return batch if named and len(batch) <= MAX_BATCH else []
