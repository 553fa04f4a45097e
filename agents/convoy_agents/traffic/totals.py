"""Converts a serving rank's totals from untrusted frames to messages for the hub."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from convoy_agents.pods.fields import MessageError, number, whole
from convoy_agents.wire import hub_pb2

MAX_BOUNDS = 64
"""Maximum number of upper bounds of a histogram."""
MAX_COUNT = 2**53
"""Maximum number of any total. JSON readers with double precision represent all whole numbers up to this one
exactly.
"""
MAX_SECONDS = 1e12
"""Maximum seconds of any total. 10,000 processors need three years for it."""


def parse(frame: Mapping[str, Any], uid: str, incarnation: int) -> hub_pb2.PodTraffic:
    """Return the totals in a rank's `traffic` frame. Raises MessageError for an invalid field."""
    found = hub_pb2.PodTraffic(
        pod_uid=uid,
        incarnation=incarnation,
        queue=whole(frame, "queue", MAX_COUNT),
        in_flight=whole(frame, "inFlight", MAX_COUNT),
        requests=whole(frame, "requests", MAX_COUNT),
        errors=whole(frame, "errors", MAX_COUNT, 0),
        refused=whole(frame, "refused", MAX_COUNT, 0),
        tokens=whole(frame, "tokens", MAX_COUNT, 0),
        compute_seconds=_seconds(frame, "computeSeconds"),
        cpu_seconds=_seconds(frame, "cpuSeconds"),
    )
    for name, histogram in (("latency", found.latency), ("firstToken", found.first_token)):
        if (given := frame.get(name)) is not None:
            _fill(histogram, given, name)
    return found


def _seconds(frame: Mapping[str, Any], name: str) -> float:
    value = number(frame, name) or 0.0
    if not 0.0 <= value <= MAX_SECONDS:
        raise MessageError(f"{name}: {value:g} is not a duration")
    return value


def _fill(histogram: hub_pb2.Latencies, given: object, name: str) -> None:
    if not isinstance(given, Mapping):
        raise MessageError(f"{name}: not an object")
    bounds, counts = given.get("bounds"), given.get("counts")
    if not isinstance(bounds, list) or not isinstance(counts, list) or len(bounds) > MAX_BOUNDS:
        raise MessageError(
            f"{name}: bounds and counts must be lists, and bounds have at most {MAX_BOUNDS} items"
        )
    if len(counts) != len(bounds) + 1:
        raise MessageError(f"{name}: {len(counts)} counts do not fit {len(bounds)} bounds")
    values = [number({"bound": bound}, "bound") or 0.0 for bound in bounds]
    if not ascending(values):
        raise MessageError(f"{name}: bounds must be ascending, and above 0 s and below {MAX_SECONDS:g} s")
    histogram.bounds.extend(values)
    histogram.counts.extend(whole({"count": count}, "count", MAX_COUNT) for count in counts)


def ascending(bounds: Sequence[float]) -> bool:
    """Return True if the upper bounds are positive, finite and ascending."""
    limits = [0.0, *bounds, MAX_SECONDS]
    return all(low < high for low, high in itertools.pairwise(limits))
