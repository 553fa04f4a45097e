"""A job's past: its Events and its last restart, newest first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from convoy_crds.telling import TROUBLE
from convoy_crds.trainingjob import TrainingJob
from convoy_operator.dashboard.core.rows import Cell, Column, Row, Tone
from convoy_operator.dashboard.core.words import ago, clock

MOST = 50
"""Happenings that are shown."""
_SAME_SECONDS = 5.0
"""Between a restart in the status and its Event."""
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
    warning = raw.get("type") == "Warning" or reason in TROUBLE
    times = max(int(raw.get("count") or 1), int(series.get("count") or 1))
    return Happening(at, reason, str(raw.get("message") or ""), Tone.WARN if warning else Tone.PLAIN, times)


def timeline(job: TrainingJob, events: Iterable[Mapping[str, Any]]) -> list[Happening]:
    """What became of a job, `MOST` at most, newest first."""
    found = [one for one in map(of_event, events) if one is not None]
    last = job.status.restarts.last
    if last is not None and not any(
        one.reason == last.reason and abs((one.at - last.at).total_seconds()) <= _SAME_SECONDS
        for one in found
    ):
        # Events are kept for an hour; the last fault stays in the status.
        found.append(Happening(last.at, last.reason, _fault(job), Tone.WARN))
    return sorted(found, key=lambda one: one.at, reverse=True)[:MOST]


def _fault(job: TrainingJob) -> str:
    last = job.status.restarts.last
    if last is None:
        return ""
    words = [f"replaces: {last.scope}", "counted" if last.counted else "not counted"]
    if last.step is not None:
        words.insert(0, f"at step {last.step}")
    if last.rank is not None and last.node:
        words.insert(0, f"rank {last.rank} on {last.node}")
    return f"{last.message} ({', '.join(words)})".strip()


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
