"""The wait of jobs for room: how often they search, and what they report meanwhile.

All waiting jobs together search at a bounded rate. A job does not search again while the room is unchanged.
Its message stays for a while, so that a wait costs few writes of its status.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from convoy_controllers.placement.rooms import Rooms, RoomTable
from convoy_controllers.workers.violation import Violation
from convoy_crds.reasons.catalogue import Reasons

RECHECK_SECONDS = 5.0
"""Minimum of the seconds between two searches of a job."""
SECONDS_PER_JOB = 0.5
"""Seconds between two searches of any waiting jobs."""
MAX_RECHECK_SECONDS = 300.0
JITTER = 0.2
"""Share of the interval by which the intervals of two jobs differ at most."""
KEPT_SECONDS = 60.0
"""Seconds for which a message stays although the room changes, while the reason is the same."""
MAX_KEPT = 4096
"""Maximum number of searches in vain that are remembered."""
WAITING_REASONS = frozenset({Reasons.NO_ROOM_TOGETHER.name, Reasons.NEVER_TOGETHER.name})


@dataclass(frozen=True, slots=True)
class InVain:
    """The result of a search that found no room."""

    why: Violation
    at: float
    """Unix seconds of the search that gave this message."""
    version: int
    """Version of the room at the last search."""


def known(rooms: Rooms, key: Hashable) -> Violation | None:
    """Return why the last search `key` was in vain; None if the room has changed since then."""
    last = rooms.held.get(key) if isinstance(rooms, RoomTable) else None
    return last.why if last is not None and last.version == rooms.version else None  # type: ignore[attr-defined]


def keep(rooms: Rooms, key: Hashable, why: Violation, now: float) -> Violation:
    """Remember that a search was in vain, and return the reason to report. `now`: Unix seconds."""
    if not isinstance(rooms, RoomTable):
        return why
    last, at = rooms.held.pop(key, None), now
    if last is not None and last.why.reason is why.reason and 0 <= now - last.at < KEPT_SECONDS:
        why, at = last.why, last.at
    while len(rooms.held) >= MAX_KEPT:
        del rooms.held[next(iter(rooms.held))]
    rooms.held[key] = InVain(why, at, rooms.version)
    return why


def drop(rooms: Rooms, key: Hashable) -> None:
    """Forget a search in vain, because there is room."""
    if isinstance(rooms, RoomTable):
        rooms.held.pop(key, None)


def recheck_seconds(rooms: Rooms, job: str) -> float:
    """Return the seconds until a job searches again. `job`: any text that differs from job to job."""
    waiting = rooms.waiting if isinstance(rooms, RoomTable) else 0
    longest = min(max(RECHECK_SECONDS, waiting * SECONDS_PER_JOB), MAX_RECHECK_SECONDS)
    return longest * (1 - JITTER * zlib.crc32(job.encode()) / 2**32)


def waits_for_room(status: Mapping[str, Any]) -> bool:
    """Return True if a job waits for room, according to its stored status."""
    conditions = status.get("conditions") or ()
    groups = (status.get("internal") or {}).get("groups") or ()
    return any(one.get("reason") in WAITING_REASONS for one in conditions) or any(
        one.get("noRoom") for one in groups
    )
