"""A job's past: its Events, and the restarts that are remembered, newest first."""

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

MOST = 50
"""Events that are shown, besides those of restarts."""
_SAME_SECONDS = 5.0
"""Between a restart in the status and its Event."""
_HEAD = 256
"""Characters by which messages are compared: both may have been cut off after these."""
COLUMNS = (
    Column("When"),
    Column("What", badge=True),
    Column("Cause", wide=True),
)


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One thing that became of a job."""

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
    """When an Event was seen last."""
    shown_events = (
        raw.get("lastTimestamp"),
        (raw.get("series") or {}).get("lastObservedTime"),
        raw.get("eventTime"),
    )
    return next((moment for moment in map(_moment, shown_events) if moment is not None), None)


def newest(events: Iterable[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """The Events that were seen last, of those with a time."""
    known = [(at, raw) for raw in events if (at := _last(raw)) is not None]
    return [raw for _, raw in sorted(known, key=lambda pair: pair[0], reverse=True)[:most]]


def from_event(raw: Mapping[str, Any]) -> TimelineEntry | None:
    """An Event; None for one without a time."""
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
    """What became of a job, newest first: its restarts, and of its Events `MOST` at most.

    `seen`: the restarts that are remembered. One that has an Event as well is told once.
    """
    shown_events = sorted(filter(None, map(from_event, events)), key=lambda one: one.at)
    # As they were when they were first seen: the incarnation of a status grows without a restart, too.
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
        # What is said again within minutes gets no Event of its own: the next one counts it.
        counted = [other for other in without_event if _same_kind(event_of_restart, other)]
        found.append(_restart(one, event_of_restart.message, event_of_restart.times - len(counted)))
        without_event = [other for other in without_event if other not in counted]
    return sorted((*found, *shown_events[-MOST:]), key=lambda one: one.at, reverse=True)


def _describes(event: TimelineEntry, restart: Restart) -> bool:
    """Whether an Event tells of that very restart."""
    return event.reason == restart.reason and abs((event.at - restart.at).total_seconds()) <= _SAME_SECONDS


def _same_kind(event: TimelineEntry, restart: Restart) -> bool:
    return event.reason == restart.reason and event.message[:_HEAD] == restart.message[:_HEAD]


def _restart(one: Restart, message: str, times: int = 1) -> TimelineEntry:
    words = f"{one.circumstances}, then incarnation {one.incarnation}"
    return TimelineEntry(one.at, one.reason, f"{message} ({words})".strip(), Tone.WARN, max(1, times))


def rows(found: Iterable[TimelineEntry], now: datetime) -> list[Row]:
    """As a table."""
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
