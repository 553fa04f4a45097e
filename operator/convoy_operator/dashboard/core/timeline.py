"""The timeline of a job: its Events and its recorded restarts, newest first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from convoy_crds.summaries import WARNING_REASONS
from convoy_crds.trainingjob import TrainingJob
from convoy_operator.dashboard.core.formatting import ago, clock
from convoy_operator.dashboard.core.restarts import Restart, latest
from convoy_operator.dashboard.core.rows import Cell, Column, Row, Tone

MAX_EVENTS = 50
"""Maximum number of Events on a timeline. The Events of restarts do not count."""
_SAME_SECONDS = 5.0
"""Maximum difference in seconds between the time of a restart in the status and the time of its Event."""
_HEAD = 256
"""Number of leading characters in which two messages are compared. The rest may be cut off in either
message.
"""
COLUMNS = (
    Column("Time"),
    Column("Event", badge=True),
    Column("Details", wide=True),
)


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """An entry of a job's timeline."""

    at: datetime
    reason: str
    message: str
    tone: Tone
    times: int = 1


def _moment(text: Any) -> datetime | None:
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else None


def _last(raw: Mapping[str, Any]) -> datetime | None:
    """Return the time of an Event's last occurrence."""
    shown_events = (
        raw.get("lastTimestamp"),
        (raw.get("series") or {}).get("lastObservedTime"),
        raw.get("eventTime"),
    )
    return next((moment for moment in map(_moment, shown_events) if moment is not None), None)


def newest(events: Iterable[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    """Return the newest Events, at most `limit`. Events without a time are left out."""
    known = [(at, raw) for raw in events if (at := _last(raw)) is not None]
    return [raw for _, raw in sorted(known, key=lambda pair: pair[0], reverse=True)[:limit]]


def from_event(raw: Mapping[str, Any]) -> TimelineEntry | None:
    """Return the timeline entry of an Event, or None if the Event has no time."""
    series, at = raw.get("series") or {}, _last(raw)
    if at is None:
        return None
    reason = str(raw.get("reason") or "")
    warning = raw.get("type") == "Warning" or reason in WARNING_REASONS
    times = max(int(raw.get("count") or 1), int(series.get("count") or 1))
    return TimelineEntry(
        at, reason, str(raw.get("message") or ""), Tone.WARN if warning else Tone.PLAIN, times
    )


def entries(
    job: TrainingJob, events: Iterable[Mapping[str, Any]], remembered: Iterable[Restart] = ()
) -> list[TimelineEntry]:
    """Return the timeline of a job, newest first: all its restarts and at most `MAX_EVENTS` further Events.

    `remembered` are the job's restarts in the dashboard's `RestartHistory`. A restart and its Event become
    one entry.
    """
    shown_events = sorted(filter(None, map(from_event, events)), key=lambda one: one.at)
    # If both the RestartHistory and the status contain a restart, use the one from the RestartHistory. The
    # incarnation in the status can grow without a restart, and the status would then show a wrong incarnation
    # for the restart.
    known = {one.at: one for one in (latest(job.status), *remembered) if one is not None}
    found: list[TimelineEntry] = []
    without_event: list[Restart] = []
    for _, one in sorted(known.items()):
        event_of_restart = next((event for event in shown_events if _describes(event, one)), None)
        if event_of_restart is None:
            without_event.append(one)
            found.append(_restart(one, one.message))
            continue
        shown_events.remove(event_of_restart)
        # The operator posts the same Event at most once in ten minutes. The next post adds the repeats that
        # were not posted to the count of the Event, so the count may include earlier restarts. Subtract those
        # that already have an entry.
        counted = [other for other in without_event if _same_kind(event_of_restart, other)]
        found.append(_restart(one, event_of_restart.message, event_of_restart.times - len(counted)))
        without_event = [other for other in without_event if other not in counted]
    return sorted((*found, *shown_events[-MAX_EVENTS:]), key=lambda one: one.at, reverse=True)


def of_events(events: Iterable[Mapping[str, Any]]) -> list[TimelineEntry]:
    """Return the newest `MAX_EVENTS` Events as a timeline, newest first."""
    found = sorted(filter(None, map(from_event, events)), key=lambda one: one.at, reverse=True)
    return found[:MAX_EVENTS]


def _describes(event: TimelineEntry, restart: Restart) -> bool:
    """Return True if the Event is the one that reports this restart."""
    return event.reason == restart.reason and abs((event.at - restart.at).total_seconds()) <= _SAME_SECONDS


def _same_kind(event: TimelineEntry, restart: Restart) -> bool:
    return event.reason == restart.reason and event.message[:_HEAD] == restart.message[:_HEAD]


def _restart(one: Restart, message: str, times: int = 1) -> TimelineEntry:
    words = f"{one.circumstances}, next incarnation {one.incarnation}"
    return TimelineEntry(one.at, one.reason, f"{message} ({words})".strip(), Tone.WARN, max(1, times))


def rows(found: Iterable[TimelineEntry], now: datetime) -> list[Row]:
    """Return the entries as table rows."""
    return [
        Row(
            f"{number}",
            (
                Cell(f"{ago(one.at, now)} ({clock(one.at)})", order=-one.at.timestamp()),
                Cell(f"{one.reason} x{one.times}" if one.times > 1 else one.reason, one.tone),
                Cell(one.message or "-"),
            ),
        )
        for number, one in enumerate(found)
    ]
