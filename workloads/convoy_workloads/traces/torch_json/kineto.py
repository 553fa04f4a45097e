"""The Kineto trace of torch's profiler: what ran when, on which thread or stream."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from convoy_workloads.traces.findings import Finding, Findings, InvalidTrace, Rule
from convoy_workloads.traces.torch_json.document import (
    FieldError,
    bounded,
    clean,
    items,
    mapping,
    microseconds,
    text,
)
from convoy_workloads.traces.trace import MAX_RANKS
from convoy_workloads.traces.wire.limits import LIMITS, Limits

HOST = frozenset({"cpu_op", "user_annotation", "cuda_runtime", "cuda_driver", "xpu_runtime"})
"""Categories of what runs on threads of the host."""
DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
"""Categories of what runs on streams of a device."""

_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """One event: its name, thread or stream, and time in nanoseconds."""

    name: str
    category: str
    lane: str
    """The thread, or the stream with its device."""
    start: int
    end: int
    args: Mapping[str, Any] = field(default_factory=dict)

    def number(self, name: str) -> int | None:
        """Return a whole number of at least 0 among the arguments; None without it."""
        return bounded(self.args.get(name))

    def text(self, name: str) -> str:
        """Return a text among the arguments; empty without it."""
        value = self.args.get(name)
        return clean(value) if isinstance(value, str) else ""

    def concrete(self, place: int) -> int | None:
        """Return a whole number among the arguments of the operator itself, which Kineto writes as texts."""
        values = items(self.args.get("Concrete Inputs"))
        value = values[place] if place < len(values) else None
        return int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else None


@dataclass(frozen=True, slots=True)
class Kineto:
    """A Kineto trace: its events in the order of their starts, and what it says of the job."""

    events: list[Event]
    distributed: Mapping[str, Any]
    """Rank, world size and process groups."""
    convoy: Mapping[str, Any]
    """Values that Convoy's recorder adds."""

    def rank(self) -> int | None:
        """Return the rank; None if the trace does not name it."""
        return bounded(self.distributed.get("rank"), MAX_RANKS)

    def world_size(self) -> int | None:
        """Return the number of ranks; None if the trace does not name it."""
        return bounded(self.distributed.get("world_size"), MAX_RANKS + 1)


def read_kineto(document: Mapping[str, Any], found: Findings, limits: Limits = LIMITS) -> Kineto:
    """Return the Kineto trace in a JSON object. Events with invalid fields are left out, with findings.

    Raises InvalidTrace if the object is no Kineto trace, has too many events, or no event that can be used.
    """
    listed = document.get("traceEvents")
    if not isinstance(listed, list):
        problem = "no Kineto trace of torch: the field `traceEvents` is missing"
        raise InvalidTrace([Finding(Rule.INVALID_FIELD, problem)])
    if len(listed) > limits.nodes:
        raise InvalidTrace([Finding(Rule.TOO_MANY_NODES, f"traceEvents: more than {limits.nodes}")])
    events = []
    for number, one in enumerate(listed):
        if not isinstance(one, dict) or one.get("ph") != "X" or str(one.get("cat")) not in HOST | DEVICE:
            continue
        try:
            events.append(_event(one, f"traceEvents[{number}]", limits))
        except FieldError as error:
            found.add(Finding(Rule.INVALID_FIELD, str(error)))
    if not events:
        raise InvalidTrace([*found.result(), Finding(Rule.NO_TIMES, "traceEvents: no event with a time")])
    events.sort(key=lambda event: (event.start, -event.end))
    return Kineto(events, mapping(document.get("distributedInfo")), mapping(document.get("convoy")))


def _event(one: Mapping[str, Any], path: str, limits: Limits) -> Event:
    args = mapping(one.get("args"))
    category = text(one, "cat", path)
    start = microseconds(one, "ts", path)
    lane = one.get("tid")
    if not isinstance(lane, int | str):
        raise FieldError(f"{path}.tid: must name a thread")
    # Kineto writes the stream of a device into `tid`, where it may equal a thread's number.
    place = f"device {args.get('device')} stream {lane}" if category in DEVICE else str(lane)
    name = text(one, "name", path)[: limits.string_length]
    length = microseconds(one, "dur", path)
    if category in DEVICE and start == length == 0:
        raise FieldError(f"{path}.ts: must be the time of {name[:80]}, not 0")  # The device gave no time.
    return Event(name, category, clean(place[:200]), start, start + length, args)


def groups_in(kineto: Kineto) -> list[dict[str, Any]]:
    """Return the process groups that the trace lists, in the order of their creation."""
    return [one for one in items(kineto.distributed.get("pg_config")) if isinstance(one, dict)]
