"""Dependencies of segments and works on each other. Each ends before what depends on it starts."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from convoy_workloads.traces.convert.segments import Operator, Segment
from convoy_workloads.traces.convert.works import Work
from convoy_workloads.traces.torch_json.host import HostNode, Tensor
from convoy_workloads.traces.torch_json.kineto import DEVICE, Event


@dataclass(slots=True, eq=False)
class Item:
    """A future node: a segment or a work, with its times in nanoseconds."""

    start: int
    end: int
    order: int
    segment: Segment | None = None
    work: Work | None = None
    data: dict[Item, None] = field(default_factory=dict)
    """Dependencies in the order of their addition."""
    control: dict[Item, None] = field(default_factory=dict)
    beside: list[Item] = field(default_factory=list)
    """The other messages of a batch, which one kernel runs."""

    @property
    def key(self) -> tuple[int, int, int]:
        """Return the order of time. An item depends only on items before it, so there are no cycles."""
        return (self.start, self.end, self.order)

    def depend(self, other: Item | None, *, control: bool = False) -> None:
        """Add a dependency, unless it is there or did not end before the start."""
        for one in () if other is None else (other, *other.beside):
            if (
                one.end <= self.start
                and one.key < self.key
                and one not in self.data
                and one not in self.control
            ):
                (self.control if control else self.data)[one] = None


class Lane:
    """The items of a thread or stream in the order of time."""

    def __init__(self, items: Iterable[Item]) -> None:
        self.items = list(items)
        self._ends = [item.end for item in self.items]

    def before(self, time: int) -> Item | None:
        """Return the last item that ended at `time` or earlier."""
        place = bisect_right(self._ends, time)
        return self.items[place - 1] if place else None


def connect(lanes: list[list[Segment]], works: list[Work], hosts: Mapping[Operator, HostNode]) -> list[Item]:
    """Return all segments and works with their dependencies. `hosts` are the operators in the host trace."""
    items = [Item(one.start, one.end, 0, segment=one) for lane in lanes for one in lane]
    items += [Item(one.event.start, one.event.end, 0, work=one) for one in works]
    for order, item in enumerate(items):
        item.order = order
    threads = [
        Lane(items[first : first + len(lane)]) for lane, first in zip(lanes, _offsets(lanes), strict=True)
    ]
    _join_batches(items)
    by_work = {item.work: item for item in items if item.work is not None}
    launched = defaultdict[str, list[Item]](list)
    for work, item in by_work.items():
        if work.launch is not None:
            launched[work.launch.lane].append(item)
    awaited = {lane: Lane(sorted(ones, key=lambda item: item.end)) for lane, ones in launched.items()}
    for thread in threads:
        _connect_thread(thread, threads, awaited, by_work)
    _connect_works(
        by_work.values(), {one.items[0].segment.lane: one for one in threads if one.items[0].segment}
    )
    _connect_storages(items, hosts)
    return items


def _join_batches(items: Iterable[Item]) -> None:
    """Note the messages of each batch beside each other: those with one kernel."""
    batches = defaultdict[Event, list[Item]](list)
    for item in items:
        if item.work is not None and item.work.asked is not None:
            batches[item.work.event].append(item)
    for batch in batches.values():
        for item in batch:
            item.beside = [one for one in batch if one is not item]


def _offsets(lanes: list[list[Segment]]) -> list[int]:
    offsets = [0]
    for lane in lanes[:-1]:
        offsets.append(offsets[-1] + len(lane))
    return offsets[: len(lanes)]


def _connect_thread(
    thread: Lane, threads: list[Lane], awaited: Mapping[str, Lane], by_work: Mapping[Work, Item]
) -> None:
    """Connect the segments of a thread with each other, with works, and after idle time with threads."""
    firsts: dict[Operator, Item] = {}
    previous: Item | None = None
    for item in thread.items:
        segment = item.segment
        assert segment is not None  # noqa: S101 - a thread has segments
        item.depend(previous)
        operator = segment.operator
        if segment.first:
            firsts[operator] = item
            item.depend(firsts.get(operator.parent) if operator.parent else None, control=True)
        else:
            item.depend(firsts[operator], control=True)
        for work in segment.works:
            item.depend(by_work[work])
        idle_since = previous.end if previous else 0
        if not segment.works and item.start > idle_since:
            latest = awaited[segment.lane].before(item.start) if segment.lane in awaited else None
            others = (one.before(item.start) for one in threads if one is not thread)
            for other in (latest, *others):
                if other is not None and other.end > idle_since:
                    item.depend(other)
                    if other is latest and previous is not None:
                        segment.waited = other.end - idle_since
        previous = item


def _connect_works(works: Iterable[Item], threads: Mapping[str, Lane]) -> None:
    """Connect each work with its launch and with the work before it on its thread or stream.

    A stream may wait for others: a kernel that starts later than both depends on the kernels of other streams
    that ended last.
    """
    lanes = defaultdict[str, list[Item]](list)
    for item in works:
        work = item.work
        assert work is not None  # noqa: S101 - these are works
        launch = work.launch
        if launch is None:
            for thread in threads.values():
                item.depend(thread.before(item.start))
        elif launch.lane in threads:
            item.depend(threads[launch.lane].before(min(item.start, launch.end)))
        if launch is None or launch.lane != work.event.lane:
            lanes[work.event.lane].append(item)
    ordered = {name: Lane(sorted(items, key=lambda one: one.end)) for name, items in lanes.items()}
    streams = {name: lane for name, lane in ordered.items() if _on_device(lane.items[0])}
    for name, lane in ordered.items():
        for item in lane.items:
            item.depend(lane.before(item.start))
            ready = max((one.end for one in item.data), default=item.start)
            for other, stream in streams.items() if name in streams else ():
                latest = stream.before(item.start)
                if other != name and latest is not None and latest.end > ready:
                    item.depend(latest)


def _on_device(item: Item) -> bool:
    return item.work is not None and item.work.event.category in DEVICE


def _connect_storages(items: list[Item], hosts: Mapping[Operator, HostNode]) -> None:
    """Connect the first segment of each operator with the last producer of each storage that it reads."""
    firsts: list[tuple[Item, HostNode]] = []
    lasts: dict[Operator, Item] = {}
    producers = defaultdict[int, list[Item]](list)
    for item in items:
        if item.segment is not None:
            host = hosts.get(item.segment.operator)
            if host is not None and item.segment.first:
                firsts.append((item, host))
            lasts[item.segment.operator] = item
        elif item.work is not None:
            for storage in _storages(_written(item.work)):
                producers[storage].append(item)
    for operator, host in hosts.items():
        for storage in _storages(host.output_tensors()):
            if operator in lasts:
                producers[storage].append(lasts[operator])
    written = {storage: Lane(sorted(ones, key=lambda one: one.end)) for storage, ones in producers.items()}
    for item, host in firsts:
        for storage in _storages(host.input_tensors()):
            if storage in written:
                item.depend(written[storage].before(item.start))


def _written(work: Work) -> list[Tensor]:
    """Return the tensors that a work writes: those of its launch. Collectives write in place."""
    if work.launcher is None or not work.communicates:
        return []
    return [*work.launcher.input_tensors(), *work.launcher.output_tensors()]


def _storages(tensors: Iterable[Tensor]) -> list[int]:
    return list(dict.fromkeys(one.storage for one in tensors))
