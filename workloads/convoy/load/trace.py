"""Recorded arrivals: files of public traces and of one's own, as CSV or as one JSON object a line.

| Source | Form |
|---|---|
| Azure's traces of LLM inference | CSV with TIMESTAMP as date and time |
| Azure's traces of functions, 2021 | CSV with end_timestamp and duration in seconds |
| Azure's traces of functions, 2019 | CSV with the columns 1 to 1440: requests in each minute |
| BurstGPT | CSV with Timestamp in seconds |
| Mooncake | JSON lines with timestamp in milliseconds |
| Qwen-Bailian | JSON lines with timestamp in seconds |
| splitwise-sim | CSV with arrival_timestamp in seconds |
| one's own | one number a line, or a column `timestamp`, `time`, `ts`, `seconds`, `at` or `arrival` |
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from convoy.load.arrivals import ScheduleError

TIMES = (
    "timestamp",
    "arrival_timestamp",
    "arrival_time",
    "arrived_at",
    "arrival",
    "time",
    "ts",
    "seconds",
    "at",
)
"""Names of the column with the time of arrival, in the order of preference."""
MINUTE = 60.0
DAY_MINUTES = 1440
MAX_ARRIVALS = 5_000_000
MOONCAKE = "hash_ids"
"""Field of Mooncake's traces, whose times are milliseconds."""
BAILIAN = "chat_id"
"""Field of Qwen-Bailian's traces. They have `hash_ids` too, but their times are seconds."""
MAX_SECONDS = 1e11
"""Largest time in seconds, in the year 5138. A larger number is a Unix time in a smaller unit."""


T = TypeVar("T")


class Unit(StrEnum):
    """Units of the times in a trace."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"

    @property
    def seconds(self) -> float:
        """Return the length of the unit in seconds."""
        return {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[self]


@dataclass(frozen=True)
class Scale:
    """Changes of a trace."""

    speed: float = 1.0
    """Factor by which the trace is replayed faster."""
    requests: float = 1.0
    """Factor of the number of requests. Below 1, requests are left out at random. Above 1, requests are
    repeated at random times before the next one.
    """


def read_trace(file: Path, unit: Unit | None = None, seed: int = 1) -> list[float]:
    """Return the arrivals in a file, in seconds from the first, in ascending order.

    `unit`: unit of the times; None to derive it from the form. `seed`: for traces that only
    count the requests of each minute. Raises ScheduleError with the line, and OSError.
    """
    found: list[float] = []
    try:
        with file.open(encoding="utf-8-sig") as lines:
            for at in _times(_Lines(file, lines), unit, seed):
                if len(found) == MAX_ARRIVALS:
                    raise ScheduleError(f"{file} has more than {MAX_ARRIVALS} arrivals: replay a part of it")
                found.append(at)
    except UnicodeDecodeError as error:
        raise ScheduleError(f"{file} is no text: {error}") from error
    if not found:
        raise ScheduleError(f"{file} has no arrivals")
    first = min(found)
    return sorted(at - first for at in found)


class _Lines:
    """The lines of a file that are not blank. Errors get the number of the line."""

    def __init__(self, file: Path, lines: Iterable[str]) -> None:
        self.file = file
        self._numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
        self._first = next(self._numbered, None)

    @property
    def head(self) -> str:
        """Return the first line; an empty text if there is none."""
        return self._first[1] if self._first else ""

    def parse(self, parse: Callable[[str], T], with_head: bool) -> Iterator[T]:
        """Yield the result of `parse` for each line. Raises ScheduleError with the line."""
        head = [self._first] if self._first and with_head else []
        for number, line in itertools.chain(head, self._numbered):
            try:
                yield parse(line)
            except (ValueError, OverflowError) as error:
                raise ScheduleError(f"{self.file}:{number}: {error}") from error
            except IndexError as error:
                raise ScheduleError(f"{self.file}:{number}: the line has too few columns") from error


def _times(lines: _Lines, unit: Unit | None, seed: int) -> Iterator[float]:
    """Yield the times in a file, in the order of its lines."""
    if lines.head.lstrip().startswith("{"):
        return lines.parse(lambda line: _json_time(line, unit), with_head=True)
    header = _cells(lines.head) if lines.head else []
    if _counts_minutes(header):
        return _spread(lines.parse(lambda line: _counts(header, line), with_head=False), seed)
    if not header or _is_time(header[0]):
        return lines.parse(lambda line: _time(_cells(line)[0], unit), with_head=True)
    column = _column(lines.file, header, unit)
    return lines.parse(lambda line: column(_cells(line)), with_head=False)


def _counts_minutes(header: Sequence[str]) -> bool:
    """Return True if the columns of a CSV file are numbers of minutes from 1."""
    numbers = [int(name) for name in header if name.isdigit()]
    return (
        len(header) > 1
        and numbers[:1] == [1]
        and numbers == list(range(1, len(numbers) + 1))
        and header[0] != "1"
    )


def _cells(line: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line]))]
    except csv.Error as error:
        raise ValueError(f"the line is no CSV: {error}") from error


def _is_time(text: str) -> bool:
    try:
        _time(text, None)
    except ValueError:
        return False
    return True


def _time(value: object, unit: Unit | None) -> float:
    """Return a time in seconds. Raises ValueError if the value is neither a number nor a date and time."""
    text = str(value)
    try:
        found = float(text) * (unit or Unit.SECONDS).seconds
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"{text[:40]!r} is neither a number nor a date and time") from None
        found = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(found):
        raise ValueError(f"the time {text[:40]} is not finite")
    if found > MAX_SECONDS:
        raise ValueError(
            f"the time {text[:40]} is too large for {'seconds' if unit is None else f'unit {unit}'}: set "
            f"--trace-unit to {', '.join(Unit)}"
        )
    return found


def _column(file: Path, header: Sequence[str], unit: Unit | None) -> Callable[[Sequence[str]], float]:
    """Return the function that reads the time in a row of a CSV file with this header."""
    names = [name.lower() for name in header]
    if "end_timestamp" in names and "duration" in names:
        end, duration = names.index("end_timestamp"), names.index("duration")
        return lambda row: _time(row[end], unit) - _time(row[duration], unit)
    name = next((one for one in TIMES if one in names), None)
    if name is None:
        raise ScheduleError(
            f"{file}: no column has a time; expected {', '.join(TIMES)}, found {', '.join(header[:12])}"
        )
    place = names.index(name)
    return lambda row: _time(row[place], unit)


def _json_time(line: str, unit: Unit | None) -> float:
    body = json.loads(line)
    if not isinstance(body, dict):
        raise ValueError("the line is no JSON object")
    name = next((one for one in TIMES if one in body), None)
    if name is None:
        raise ValueError(f"no field has a time; expected one of {', '.join(TIMES)}")
    milliseconds = MOONCAKE in body and BAILIAN not in body
    return _time(body[name], unit or (Unit.MILLISECONDS if milliseconds else None))


def _counts(header: Sequence[str], line: str) -> list[tuple[int, int]]:
    """Return the minutes of a row, from 1, with their counts of requests."""
    row = _cells(line)
    found = [(int(name), int(row[place] or 0)) for place, name in enumerate(header) if name.isdigit()]
    if any(count < 0 for _, count in found):
        raise ValueError("a count of requests is negative")
    return found


def _spread(rows: Iterable[Sequence[tuple[int, int]]], seed: int) -> Iterator[float]:
    """Yield arrivals at random times of each minute, as many as the rows count."""
    drawn = random.Random(seed)  # noqa: S311 - a repeatable load, no secret
    for row in rows:
        for minute, count in row:
            for _ in range(count):
                yield MINUTE * (minute - 1 + drawn.random())


def scaled(times: Sequence[float], scale: Scale, seed: int, seconds: float | None = None) -> Iterator[float]:
    """Yield the arrivals of a trace, changed by `scale`, in ascending order. `seconds`: duration of the load,
    after which the rest of the trace is left out.
    """
    drawn = random.Random(seed)  # noqa: S311 - a repeatable load, no secret
    whole, share = divmod(scale.requests, 1.0)
    ends = [*times[1:], times[-1]]
    for at, following in zip(times, ends, strict=True):
        copies = int(whole) + (drawn.random() < share)
        moments = [at, *(at + (following - at) * drawn.random() for _ in range(copies - 1))][:copies]
        for moment in sorted(moments):
            if seconds is not None and moment / scale.speed >= seconds:
                return
            yield moment / scale.speed
