"""Converts a rank's step timings from untrusted frames to messages for the hub."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from convoy_agents.pods.fields import MessageError, number, whole
from convoy_agents.wire import hub_pb2

MAX_WINDOWS = 32
"""Maximum number of windows in a frame."""
MAX_STEPS = 4096
"""Maximum number of steps in a window."""
MAX_MICRO = 64
MAX_SECONDS = 1e6
"""Maximum seconds of any duration in a window. No real step takes that long."""
MAX_COLLECTIVES = 8
"""Maximum number of communicators in a window."""
MAX_KIND = 32
"""Maximum characters of a communicator's kind."""
MAX_MEMBERS = 256
"""Maximum characters of a communicator's list of ranks."""
_MAX_STEP = 2**53
_MAX_POSITION = 2**31 - 1
_MAX_BYTES = 2**63 - 1
_MAX_COUNT = 2**32 - 1
_RANKS = re.compile(r"\d+(-\d+(:\d+)?)?(,\d+(-\d+(:\d+)?)?)*", re.ASCII)

_SECONDS = ("wall", "compute", "optimizer", "data", "wait", "save")


def parse(frame: Mapping[str, Any], rank: int) -> tuple[hub_pb2.StepWindow, ...]:
    """Return the step windows in a rank's `telemetry` frame. Raises MessageError for an invalid field."""
    given = frame.get("windows")
    if not isinstance(given, list) or len(given) > MAX_WINDOWS:
        raise MessageError(f"windows: not a list of at most {MAX_WINDOWS} items")
    return tuple(_window(one, rank) for one in given)


def _window(given: object, rank: int) -> hub_pb2.StepWindow:
    if not isinstance(given, Mapping):
        raise MessageError("windows: an item is not an object")
    first, last = whole(given, "first", _MAX_STEP), whole(given, "last", _MAX_STEP)
    if not 0 < first <= last < first + MAX_STEPS:
        raise MessageError(f"windows: steps {first} to {last} are not a window of 1 to {MAX_STEPS} steps")
    window = hub_pb2.StepWindow(
        rank=rank, first=first, last=last, tokens=whole(given, "tokens", _MAX_STEP, 0)
    )
    for name in _SECONDS:
        setattr(window, name, _seconds(number(given, name) or 0.0, name))
    micro = given.get("micro", [])
    if not isinstance(micro, list) or len(micro) > MAX_MICRO:
        raise MessageError(f"micro: not a list of at most {MAX_MICRO} items")
    window.micro.extend(_seconds(one, "micro") for one in micro)
    if given.get("exchanges") not in (None, True, False):
        raise MessageError("exchanges: not true or false")
    window.exchanges = bool(given.get("exchanges"))
    if "stage" in given or "replica" in given:
        window.position.stage = whole(given, "stage", _MAX_POSITION)
        window.position.replica = whole(given, "replica", _MAX_POSITION)
        window.position.SetInParent()
    collectives = given.get("collectives", [])
    if not isinstance(collectives, list) or len(collectives) > MAX_COLLECTIVES:
        raise MessageError(f"collectives: not a list of at most {MAX_COLLECTIVES} items")
    window.collectives.extend(_collective(one) for one in collectives)
    return window


def _collective(given: object) -> hub_pb2.Collective:
    if not isinstance(given, Mapping):
        raise MessageError("collectives: an item is not an object")
    kind, members = given.get("kind"), given.get("members")
    if not isinstance(kind, str) or not 0 < len(kind) <= MAX_KIND or not kind.isprintable():
        raise MessageError(f"kind: not a printable text of 1 to {MAX_KIND} characters")
    if not isinstance(members, str) or len(members) > MAX_MEMBERS or not _RANKS.fullmatch(members):
        raise MessageError(f"members: not a list of ranks with at most {MAX_MEMBERS} characters")
    return hub_pb2.Collective(
        kind=kind,
        members=members,
        bytes=whole(given, "bytes", _MAX_BYTES, 0),
        count=whole(given, "count", _MAX_COUNT, 0),
        seconds=_seconds(number(given, "seconds") or 0.0, "seconds"),
    )


def _seconds(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MessageError(f"{name}: not a number")
    if not (math.isfinite(value) and 0 <= value <= MAX_SECONDS):
        raise MessageError(f"{name}: not from 0 to {MAX_SECONDS:g} seconds")
    return float(value)
