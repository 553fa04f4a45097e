"""Waits: segments in which the host waits for a work.

The wait lies in the time of an operator that encloses it. DDP, for example, waits for its last all-reduce in
the time of the step itself. A segment that starts after the launch of a work and contains the end of the work
is taken for such a wait: the segment then starts at the end of the work.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable

from convoy_workloads.traces.convert.segments import Segment
from convoy_workloads.traces.convert.works import Work
from convoy_workloads.traces.torch_json.kineto import DEVICE

_SYNCHRONISES = re.compile(r"(?:cuda|hip)\w*Synchronize\w*|(?:cuda|hip)Memcpy\w*")
"""Calls of the driver that wait for streams."""


def mark_waits(lanes: Iterable[list[Segment]], works: Iterable[Work]) -> None:
    """Move the start of each segment that waits to the end of the works that it waits for.

    The works of gloo are awaited by the thread that launched them, in the time of an annotation or of the
    autograd engine: operators compute. Kernels are awaited by calls that synchronise.
    """
    host, device = defaultdict[str, list[Work]](list), list[Work]()
    for work in works:
        if work.event.category in DEVICE:
            device.append(work)
        elif work.launch is not None:
            host[work.launch.lane].append(work)
    ends = {lane: sorted(ones, key=lambda work: work.event.end) for lane, ones in host.items()}
    device.sort(key=lambda work: work.event.end)
    times = {lane: [work.event.end for work in ones] for lane, ones in ends.items()}
    device_times = [work.event.end for work in device]
    for lane in lanes:
        for segment in lane:
            event = segment.operator.event
            if event.category == "user_annotation" or event.name.startswith("autograd::engine"):
                _wait(segment, ends.get(segment.lane, []), times.get(segment.lane, []))
            elif _SYNCHRONISES.fullmatch(event.name):
                _wait(segment, device, device_times)


def _wait(segment: Segment, works: list[Work], times: list[int]) -> None:
    """Move the start of a segment to the last end of a work in it. `times` are the ends of `works`."""
    last = bisect_right(times, segment.end)
    first = bisect_right(times, segment.start)
    awaited = dict[str | Work, Work]()
    for work in works[first:last]:
        launch = work.launch
        if launch is None or launch.end <= segment.start:
            # Works of one thread or stream end one after the other: the last one counts. Sends and receives
            # of gloo have no thread of their own.
            alone = launch is not None and launch.lane == work.event.lane
            awaited[work if alone else work.event.lane] = work
    if awaited:
        segment.works = list(awaited.values())
        end = max(work.event.end for work in segment.works)
        segment.waited = end - segment.start
        segment.start = end
