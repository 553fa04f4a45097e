"""A job's past: its Events, and the restarts that are remembered, newest first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from convoy_crds.summaries import WARNING_REASONS
from convoy_crds.trainingjob import TrainingJob
from convoy_operator.dashboard.core.restarts import Restart, latest
from convoy_operator.dashboard.core.rows import Cell, Column, Row, Tone
from convoy_operator.dashboard.core.words import ago, clock

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
class Happening:
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
    told = (
        raw.get("lastTimestamp"),
        (raw.get("series") or {}).get("lastObservedTime"),
        raw.get("eventTime"),
    )
    return next((moment for moment in map(_moment, told) if moment is not None), None)


def newest(events: Iterable[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """The Events that were seen last, of those with a time."""
    known = [(at, raw) for raw in events if (at := _last(raw)) is not None]
    return [raw for _, raw in sorted(known, key=lambda pair: pair[0], reverse=True)[:most]]


def of_event(raw: Mapping[str, Any]) -> Happening | None:
    """An Event; None for one without a time."""
    series, at = raw.get("series") or {}, _last(raw)
    if at is None:
        return None
    reason = str(raw.get("reason") or "")
    warning = raw.get("type") == "Warning" or reason in WARNING_REASONS
    times = max(int(raw.get("count") or 1), int(series.get("count") or 1))
    return Happening(at, reason, str(raw.get("message") or ""), Tone.WARN if warning else Tone.PLAIN, times)


def timeline(
    job: TrainingJob, events: Iterable[Mapping[str, Any]], seen: Iterable[Restart] = ()
) -> list[Happening]:
    """What became of a job, newest first: its restarts, and of its Events `MOST` at most.

    `seen`: the restarts that are remembered. One that has an Event as well is told once.
    """
    told = sorted(filter(None, map(of_event, events)), key=lambda one: one.at)
    # As they were when they were first seen: the incarnation of a status grows without a restart, too.
    known = {one.at: one for one in (latest(job.status), *seen) if one is not None}
    found: list[Happening] = []
    alone: list[Restart] = []
    for _, one in sorted(known.items()):
        own = next((event for event in told if _is_of(event, one)), None)
        if own is None:
            alone.append(one)
            found.append(_restart(one, one.message))
            continue
        told.remove(own)
        # What is said again within minutes gets no Event of its own: the next one counts it.
        counted = [other for other in alone if _same(own, other)]
        found.append(_restart(one, own.message, own.times - len(counted)))
        alone = [other for other in alone if other not in counted]
    return sorted((*found, *told[-MOST:]), key=lambda one: one.at, reverse=True)


def _is_of(event: Happening, restart: Restart) -> bool:
    """Whether an Event tells of that very restart."""
    return event.reason == restart.reason and abs((event.at - restart.at).total_seconds()) <= _SAME_SECONDS


def _same(event: Happening, restart: Restart) -> bool:
    return event.reason == restart.reason and event.message[:_HEAD] == restart.message[:_HEAD]


def _restart(one: Restart, message: str, times: int = 1) -> Happening:
    words = f"{one.circumstances}, then incarnation {one.incarnation}"
    return Happening(one.at, one.reason, f"{message} ({words})".strip(), Tone.WARN, max(1, times))


def rows(found: Iterable[Happening], now: datetime) -> list[Row]:
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
