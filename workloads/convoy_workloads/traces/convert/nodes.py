"""Nodes of the Chakra trace from segments and works."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

from convoy_workloads.traces.attributes import set_attributes
from convoy_workloads.traces.convert.dependencies import Item
from convoy_workloads.traces.convert.groups import Groups
from convoy_workloads.traces.convert.kinds import ELEMENT_BYTES
from convoy_workloads.traces.convert.segments import Operator
from convoy_workloads.traces.convert.works import Work, other_rank, tag_of
from convoy_workloads.traces.findings import Finding, Findings, Rule, short
from convoy_workloads.traces.torch_json.document import bounded
from convoy_workloads.traces.torch_json.document import items as as_list
from convoy_workloads.traces.torch_json.host import HostNode, tensors
from convoy_workloads.traces.torch_json.kineto import DEVICE, Event
from convoy_workloads.traces.trace import Collective, NodeType, set_type
from convoy_workloads.traces.wire.messages import IOInfo, Node

STEP = "ProfilerStep#"
"""Beginning of the name of the annotation around a step; the step's number follows."""
MAX_TEXT = 4096
"""Bytes of an operator's arguments that a node keeps. Longer ones are left out."""
_ALL_TO_ALL_INPUTS = slice(1, 2)
"""Place of the inputs among the arguments of c10d's all-to-alls, after the outputs."""


def micros(nanoseconds: int) -> int:
    """Return whole microseconds. Both ends of an interval are rounded down, so intervals stay adjacent."""
    return nanoseconds // 1000


class NodeMaker:
    """Makes the nodes of one trace."""

    def __init__(
        self, items: Iterable[Item], hosts: Mapping[Operator, HostNode], groups: Groups, rank: int | None
    ) -> None:
        self._hosts = hosts
        self._groups = groups
        self._rank = rank
        self._items = sorted(items, key=_place)
        self._begin = min((item.start for item in self._items), default=0)
        self._ids = self._number()
        self._steps = sorted(_steps(item.segment.operator.event for item in self._items if item.segment))

    def make(self, found: Findings) -> list[Node]:
        """Return the nodes in the order of time. Communications are in the order of their launches."""
        return [self._node(item, found) for item in self._items]

    def _number(self) -> dict[Item, int]:
        """Return an id for each item: that of the host trace for the first segment of an operator."""
        used = set[int]()
        ids: dict[Item, int] = {}
        for item in self._items:
            host = self._host(item)
            if host is not None and host.id not in used and (item.segment is None or item.segment.first):
                ids[item] = host.id
                used.add(host.id)
        fresh = count(max(used, default=-1) + 1)
        return {item: ids[item] if item in ids else next(fresh) for item in self._items}

    def _host(self, item: Item) -> HostNode | None:
        if item.segment is not None:
            return self._hosts.get(item.segment.operator)
        return item.work.host if item.work else None

    def _node(self, item: Item, found: Findings) -> Node:
        start, end = micros(item.start), micros(item.end)
        ready = max((micros(one.end) for one in (*item.data, *item.control)), default=micros(self._begin))
        node = Node(
            id=self._ids[item],
            start_time_micros=start,
            duration_micros=end - start,
            data_deps=[self._ids[one] for one in item.data],
            ctrl_deps=[self._ids[one] for one in item.control],
        )
        if item.segment is not None:
            self._fill_computation(node, item)
        elif item.work is not None:
            self._fill_work(node, item.work, found)
        launch = item.work.launch if item.work else None
        step = self._step(launch.start if launch else item.start)
        waited = micros(item.start) - micros(item.start - item.segment.waited) if item.segment else 0
        set_attributes(node, host_gap_us=(start - ready) or None, wait_us=waited or None, step=step)
        return node

    def _fill_computation(self, node: Node, item: Item) -> None:
        segment = item.segment
        assert segment is not None  # noqa: S101 - the caller has checked
        node.name = segment.operator.event.name
        set_type(node, NodeType.COMP)
        host = self._hosts.get(segment.operator)
        if host is not None and segment.first:
            _fill_arguments(node.inputs, host.inputs)
            _fill_arguments(node.outputs, host.outputs)
        set_attributes(node, is_cpu_op=True, tid=_thread(segment.lane))

    def _fill_work(self, node: Node, work: Work, found: Findings) -> None:
        node.name = work.event.name
        set_type(node, NodeType.COMP)
        set_attributes(node, is_cpu_op=False)
        if work.kind is None:
            set_attributes(node, stream=work.event.lane)
            return
        group = self._groups.name_of(work, found)
        size = _bytes(work)
        if size is None:
            text = f"{short(work.event.name)}: the traces do not show its bytes"
            found.add(Finding(Rule.UNKNOWN_SIZE, text, node=node.id))
        if isinstance(work.kind, Collective):
            set_type(node, NodeType.COLLECTIVE)
            set_attributes(node, comm_type=int(work.kind), comm_size=size or 0, pg_name=group)
            return
        set_type(node, work.kind)
        set_attributes(node, comm_size=size or 0, pg_name=group, **self._ends(work, group))

    def _ends(self, work: Work, group: str | None) -> dict[str, int]:
        """Return source, destination and tag of a send or receive."""
        named = other_rank(work)
        other = None if named is None else self._groups.global_rank(group, named)
        mine = self._rank
        source, target = (mine, other) if work.kind is NodeType.SEND else (other, mine)
        ends = {"comm_src": source, "comm_dst": target, "comm_tag": tag_of(work)}
        return {name: value for name, value in ends.items() if value is not None}

    def _step(self, time: int) -> int | None:
        place = bisect_right(self._steps, (time, 2**62, 2**62))
        if not place:
            return None
        _, end, number = self._steps[place - 1]
        return number if time < end else None


def _place(item: Item) -> tuple[int, int, int, int]:
    if item.work is not None:
        return (*item.work.key, 1, item.order)
    return (item.start, item.end, 0, item.order)


def _steps(events: Iterable[Event]) -> set[tuple[int, int, int]]:
    numbers = ((event, event.name.removeprefix(STEP)) for event in events if event.name.startswith(STEP))
    return {
        (event.start, event.end, int(number))
        for event, number in numbers
        if number[:18] == number and number.isdecimal()
    }


def _fill_arguments(info: IOInfo, arguments: Mapping[str, Any]) -> None:
    for name in ("values", "shapes", "types"):
        text = json.dumps(as_list(arguments.get(name)), separators=(",", ":"))
        if 2 < len(text) <= MAX_TEXT:
            setattr(info, name, text)


def _thread(lane: str) -> int | None:
    return int(lane) if lane.isdecimal() and len(lane) < 18 else None


def _bytes(work: Work) -> int | None:
    """Return the bytes that this rank sends or receives; None if the traces lack them."""
    if work.kind is Collective.BARRIER:
        return 0
    event = work.event
    if work.asked is not None:
        return _bytes_asked(work, work.asked)
    if event.category in DEVICE:
        name = "Out msg nelems" if work.kind is NodeType.RECV else "In msg nelems"
        element = ELEMENT_BYTES.get(str(event.args.get("dtype")).lower())
        elements = event.number(name)
        return None if element is None or elements is None else bounded(element * elements)
    found = work.host.input_tensors() if work.host else []
    if not found and work.launcher:
        # A rank that only receives, as in a scatter, puts nothing in: its result counts.
        found = work.launcher.input_tensors()
    return bounded(sum(one.bytes for one in found)) if found else _bytes_of_dims(event)


def _bytes_asked(work: Work, asked: Event) -> int | None:
    """Return the bytes of the tensors that the operator puts in, or that it receives."""
    inputs = (
        _ALL_TO_ALL_INPUTS
        if work.kind is Collective.ALL_TO_ALL and asked.name.startswith("c10d::")
        else slice(1)
    )
    values = work.launcher.values()[inputs] if work.launcher else []
    found = list(tensors(values))
    return bounded(sum(one.bytes for one in found)) if found else _bytes_of_dims(asked, inputs)


def _bytes_of_dims(event: Event, inputs: slice = slice(None)) -> int | None:
    """Return the bytes of the tensors that Kineto names by shape and type."""
    dims, types = (as_list(event.args.get(name))[inputs] for name in ("Input Dims", "Input type"))
    total = 0
    for shape, kind in zip(dims, types, strict=False):
        element = ELEMENT_BYTES.get(str(kind).lower())
        for one in as_list(shape):
            length = bounded(one)
            element = None if element is None or length is None else bounded(element * length)
        if element is None:
            return None
        total += element
    return bounded(total) if dims and types else None
