"""Prices of spot nodes over time: the price of a moment, the cost of an interval, and traces in CSV.

A price that is unknown or too old is never 0: it counts as the on-demand price.
"""

from __future__ import annotations

import csv
import io
import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

SECONDS_PER_HOUR = 3600.0
MAX_TRACE_ROWS = 50_000
"""Maximum number of rows of a price trace."""
MAX_PRICE = 1e6
"""Maximum price of a node per hour."""
MAX_TIME = 253_402_300_800.0
"""Unix seconds of the year 10000. A number above is no time in seconds."""
TIME_COLUMN, PRICE_COLUMN = "time", "perHour"
_COLUMNS = 2

Step = tuple[float, float | None]
"""Unix seconds, and the price per hour from then on; None if the price is unknown from then on."""


@dataclass(frozen=True, slots=True)
class PriceSchedule:
    """The price of a spot node as a step function of time."""

    on_demand: float
    """Price of an on-demand node per hour."""
    steps: tuple[Step, ...] = ()
    """Prices per hour, in order of time. Before the first step the price is unknown."""
    as_of: float | None = None
    """Unix seconds at which the prices were read; None if that is unknown."""
    max_age: float = math.inf
    """Seconds after `as_of` for which the last price still counts."""

    @classmethod
    def constant(cls, per_hour: float, on_demand: float) -> PriceSchedule:
        """Return a schedule with one price for all times."""
        return cls(on_demand, ((-math.inf, per_hour),), as_of=0.0)

    def known_until(self, now: float) -> float:
        """Return the Unix seconds from which the price is too old. A time of reading in the future counts
        as `now`.
        """
        return -math.inf if self.as_of is None else min(self.as_of, now) + self.max_age

    def spot(self, t: float, now: float) -> float | None:
        """Return the spot price per hour at time `t`, as known at `now`; None if it is unknown or too old."""
        index = bisect_right(self.steps, t, key=lambda step: step[0]) - 1
        return self.steps[index][1] if index >= 0 and t < self.known_until(now) else None

    def price(self, t: float, now: float) -> float:
        """Return the price per hour at time `t`, as known at `now`. An unknown price counts as the
        on-demand price.
        """
        found = self.spot(t, now)
        return self.on_demand if found is None else found

    def cost(self, start: float, end: float, now: float) -> float:
        """Return the cost of one node from `start` to `end`, with the prices known at `now`."""
        return sum(
            (until - since) * self.price(since, now) / SECONDS_PER_HOUR
            for since, until in self._pieces(start, end, now)
        )

    def unknown_seconds(self, start: float, end: float, now: float) -> float:
        """Return the seconds between `start` and `end` that count at the on-demand price, because the spot
        price is unknown or too old.
        """
        return sum(
            until - since for since, until in self._pieces(start, end, now) if self.spot(since, now) is None
        )

    def _pieces(self, start: float, end: float, now: float) -> Iterator[tuple[float, float]]:
        """Yield the parts of the interval within which the price does not change."""
        if end <= start:
            return
        first = bisect_right(self.steps, start, key=lambda step: step[0])
        cuts = {self.known_until(now)}
        for time, _ in self.steps[first:]:
            if time >= end:
                break
            cuts.add(time)
        since = start
        for cut in sorted(cut for cut in cuts if start < cut < end):
            yield since, cut
            since = cut
        yield since, end


@dataclass(frozen=True, slots=True)
class TraceProblem:
    """A fault of a price trace."""

    line: int
    """Number of the line, counted from 1; 0 if the whole trace is at fault."""
    message: str
    gap: bool = False
    """True if the price is only unknown from this line on. The rest of the trace is usable."""

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" if self.line else self.message


@dataclass(frozen=True, slots=True)
class PriceTrace:
    """The content of a price trace, and its faults."""

    steps: tuple[Step, ...] = ()
    """The steps; empty if the trace is unusable."""
    problem: TraceProblem | None = None
    """The first fault that makes the trace unusable; if there is none, the first gap."""


def parse_trace(text: str) -> PriceTrace:
    """Return the price trace in `text`: CSV with the columns `time` and `perHour`.

    A time is in RFC 3339 or in Unix seconds. Times must increase. A row with an empty price is a gap: the
    price is unknown until the next row. The first line may be a header, after a byte order mark.
    """
    steps: list[Step] = []
    gap: TraceProblem | None = None
    rows = csv.reader(io.StringIO(text.removeprefix("\ufeff")))
    try:
        for row in rows:
            if not row or (rows.line_num == 1 and _is_header(row)):
                continue
            step, problem = _step(row, rows.line_num, steps)
            if problem is not None and not problem.gap:
                return PriceTrace((), problem)
            gap = gap or problem
            steps.append(step)
    except csv.Error as error:
        return PriceTrace((), TraceProblem(rows.line_num, f"this is no CSV: {error}"))
    if not steps:
        return PriceTrace((), TraceProblem(0, "the trace has no rows"))
    return PriceTrace(tuple(steps), gap)


def _is_header(row: list[str]) -> bool:
    return [word.strip().lower() for word in row] == [TIME_COLUMN, PRICE_COLUMN.lower()]


def _step(row: list[str], line: int, before: list[Step]) -> tuple[Step, TraceProblem | None]:
    nothing: Step = (0.0, None)
    if len(row) != _COLUMNS:
        problem = f"the row has {len(row)} columns instead of {_COLUMNS}, {TIME_COLUMN} and {PRICE_COLUMN}"
        return nothing, TraceProblem(line, problem)
    if len(before) >= MAX_TRACE_ROWS:
        return nothing, TraceProblem(line, f"the trace has more than {MAX_TRACE_ROWS} rows: shorten it")
    time, price = _time(row[0].strip()), row[1].strip()
    if isinstance(time, str):
        return nothing, TraceProblem(line, f"{row[0]!r} is no time: {time}")
    if before and time <= before[-1][0]:
        problem = f"time {row[0].strip()} is not after the time of the row before: sort the rows by time"
        return nothing, TraceProblem(line, problem)
    if not price:
        return (time, None), TraceProblem(line, "the row has no price", gap=True)
    value = _number(price)
    if value is None or not 0 < value <= MAX_PRICE:
        return nothing, TraceProblem(
            line, f"{price!r} is no price: use a number above 0, at most {MAX_PRICE:g}"
        )
    return (time, value), None


def _time(text: str) -> float | str:
    """Return Unix seconds, or what to write instead of the text."""
    number = _number(text)
    if number is not None:
        return number if number < MAX_TIME else "use Unix seconds, not milliseconds"
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return "use RFC 3339 or Unix seconds"
    return found.timestamp() if found.tzinfo is not None else "add the time zone, such as Z for UTC"


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
