"""Reads traces in CSV: rows of a time and the number of nodes from then on, in the order of time.

A time may repeat: the last row of a time counts. The first line may be the header `time,count`.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from convoy_workloads.spot.trace import MAX_NODES, Notices, SpotTrace, from_counts

EXTRACTS = Path(__file__).parent / "extracts"
MAX_ROWS = 200_000
_HEADER = ["time", "count"]
_COLUMNS = 2


class TimeUnit(StrEnum):
    """Unit of the times in a file."""

    SECONDS = "seconds"
    MINUTES = "minutes"
    HOURS = "hours"


_SECONDS = {TimeUnit.SECONDS: 1.0, TimeUnit.MINUTES: 60.0, TimeUnit.HOURS: 3600.0}


class InvalidTrace(ValueError):
    """Raised for a trace that cannot be used. The message names the line."""


@dataclass(frozen=True, slots=True)
class Extract:
    """A recorded trace that comes with Convoy."""

    file: str
    unit: TimeUnit
    description: str

    def counts(self) -> list[tuple[float, int]]:
        """Return the times in seconds with the numbers of nodes."""
        return parse_counts((EXTRACTS / self.file).read_text(), self.unit)


SHIPPED = {
    "g4dn-us-east-1c": Extract(
        "g4dn-us-east-1c.csv", TimeUnit.SECONDS, "12 g4dn.xlarge of AWS, one zone, 24 hours from 2020-11-20"
    ),
    "p2-us-east-1": Extract(
        "p2-us-east-1.csv", TimeUnit.HOURS, "16 p2.xlarge of AWS, 89 hours from 2020-11-20"
    ),
}
"""Recorded traces by name. They come from github.com/uclasystem/bamboo under the MIT licence."""


def parse_counts(text: str, unit: TimeUnit = TimeUnit.SECONDS) -> list[tuple[float, int]]:
    """Return the times in seconds with the numbers of nodes. Raises InvalidTrace with the line."""
    found: list[tuple[float, int]] = []
    for line, row in _rows(text):
        time, count = _time(row, line) * _SECONDS[unit], _count(row, line)
        if found and time < found[-1][0]:
            at = row[0].strip()
            raise InvalidTrace(f"line {line}: time {at} is before the time of the row above; sort the rows")
        if len(found) >= MAX_ROWS:
            raise InvalidTrace(f"line {line}: a trace must have at most {MAX_ROWS} rows; shorten it")
        found.append((time, count))
    if not found:
        raise InvalidTrace("the trace has no rows; write rows of time,count")
    if found[-1][0] <= found[0][0]:
        raise InvalidTrace(
            f"line {line}: all rows have the same time; the time of the last row must be the trace's end"
        )
    if not any(count for _, count in found):
        raise InvalidTrace("no row has a node; count must be above 0 in at least one row")
    return found


def parse_trace(
    text: str, unit: TimeUnit = TimeUnit.SECONDS, notices: Notices | None = None, seed: int = 0
) -> SpotTrace:
    """Return the trace in `text`. Raises InvalidTrace with the line.

    The trace starts at the time of the first row and ends at that of the last.
    """
    return trace_of(parse_counts(text, unit), notices, seed)


def trace_of(counts: list[tuple[float, int]], notices: Notices | None = None, seed: int = 0) -> SpotTrace:
    """Return the trace of times with numbers of nodes, with times from its own start."""
    start = counts[0][0]
    last = dict(counts)  # the last row of a time counts
    moved = [(time - start, count) for time, count in last.items()]
    return from_counts(moved, counts[-1][0] - start, notices, seed)


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    rows = csv.reader(io.StringIO(text.removeprefix("\ufeff")))
    try:
        for row in rows:
            words = [word.strip().lower() for word in row]
            if not any(words) or (rows.line_num == 1 and words == _HEADER):
                continue
            if len(row) != _COLUMNS:
                raise InvalidTrace(
                    f"line {rows.line_num}: a row must be time,count; this one has {len(row)} values"
                )
            yield rows.line_num, row
    except csv.Error as error:
        raise InvalidTrace(f"line {rows.line_num}: this is no CSV: {error}") from error


def _time(row: list[str], line: int) -> float:
    try:
        time = float(row[0])
    except ValueError:
        time = math.nan
    if not math.isfinite(time) or time < 0:
        raise InvalidTrace(f"line {line}: time {row[0].strip()!r} must be a number from 0")
    return time


def _count(row: list[str], line: int) -> int:
    word = row[1].strip()
    if not word:
        raise InvalidTrace(f"line {line}: count is missing; a trace must not have gaps")
    if not (word.isascii() and word.isdigit()) or int(word) > MAX_NODES:
        raise InvalidTrace(f"line {line}: count {word!r} must be a whole number from 0 to {MAX_NODES}")
    return int(word)
