"""Segments: the intervals of a thread in which one operator itself runs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from convoy_workloads.traces.convert.works import Work
from convoy_workloads.traces.findings import Finding, Findings, Rule, short
from convoy_workloads.traces.torch_json.kineto import Event

_MICROSECOND = 1000


@dataclass(slots=True, eq=False)
class Operator:
    """An operator or annotation with its place in the nesting of its thread."""

    event: Event
    parent: Operator | None
    end: int
    """End in nanoseconds, not after the end of the parent."""


@dataclass(slots=True, eq=False)
class Segment:
    """One interval of a thread, in nanoseconds."""

    operator: Operator
    lane: str
    start: int
    end: int
    first: bool
    """True for the first segment of its operator, which may be empty."""
    waited: int = 0
    """Nanoseconds before the start in which the operator waited for `works`."""
    works: list[Work] = field(default_factory=list)


def nest(events: Iterable[Event], found: Findings) -> list[Operator]:
    """Return the operators of one thread in the order of their starts, with their parents.

    An event that ends after its parent is cut at the parent's end.
    """
    operators: list[Operator] = []
    stack: list[Operator] = []
    for event in events:
        while stack and stack[-1].end <= event.start:
            stack.pop()
        parent = stack[-1] if stack else None
        end = event.end if parent is None else min(event.end, parent.end)
        if event.end - end > _MICROSECOND and parent is not None:
            text = (
                f"{short(event.name)} ends {event.end - end} ns after {short(parent.event.name)}, "
                "which contains its start"
            )
            found.add(Finding(Rule.OVERLAP, text))
        operators.append(Operator(event, parent, end))
        stack.append(operators[-1])
    return operators


def segments(operators: list[Operator], cuts: dict[Event, list[int]]) -> list[Segment]:
    """Return the segments of one thread in the order of time. `cuts` are further times at which the segments
    of an operator end.
    """
    found: list[Segment] = []
    seen = set[Event]()
    for operator, start, end in _own_times(operators):
        times = cuts.get(operator.event, [])
        inner = times[bisect_right(times, start) : bisect_left(times, end)]
        for begin, stop in zip([start, *inner], [*inner, end], strict=True):
            first = operator.event not in seen
            if first or stop > begin:
                seen.add(operator.event)
                found.append(Segment(operator, operator.event.lane, begin, stop, first))
    return found


def _own_times(operators: list[Operator]) -> Iterator[tuple[Operator, int, int]]:
    """Yield the intervals in which each operator itself runs, in the order of time."""
    stack: list[Operator] = []
    position = 0
    for operator in operators:
        while stack and stack[-1] is not operator.parent:
            top = stack.pop()
            yield top, position, top.end
            position = top.end
        if stack:
            yield stack[-1], position, operator.event.start
        position = operator.event.start
        stack.append(operator)
    while stack:
        top = stack.pop()
        yield top, position, top.end
        position = top.end


def cut_at_starts(works: Iterable[Work]) -> dict[Event, list[int]]:
    """Return the times at which launches are cut: a work may start before its launch has returned, and then
    depends on the part of the launch before its start.
    """
    cuts = defaultdict[Event, set[int]](set)
    for work in works:
        if work.launch is not None:
            cuts[work.launch].add(work.event.start)
    return {event: sorted(times) for event, times in cuts.items()}
