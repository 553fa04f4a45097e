"""Tests of the lines that are shown if a log is read several times, each time from its first line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy.client.log_position import LogPosition, split_timestamp


def shown(*readings: list[int]) -> list[list[int]]:
    """Return the lines that each reading shows. A line is represented by its time."""
    position = LogPosition()
    found: list[list[int]] = []
    for times in readings:
        position.rewind()
        found.append([at for at in times if position.is_new(at)])
    return found


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ([[1, 2, 3]], [[1, 2, 3]]),
        # The clock is set back in the first reading or in a later reading.
        ([[7, 8, 3, 4, 4, 9]], [[7, 8, 3, 4, 4, 9]]),
        ([[1, 2], [1, 2, 3, 1, 2]], [[1, 2], [3, 1, 2]]),
        ([[7, 8, 3], [7, 8, 3, 4], [7, 8, 3, 4, 5]], [[7, 8, 3], [4], [5]]),
        # The last line of the first reading and the first new line have the same time.
        ([[1, 2], [1, 2, 2, 2]], [[1, 2], [2, 2]]),
        ([[1, 2, 2], [1, 2, 2, 2, 3]], [[1, 2, 2], [2, 3]]),
        ([[2], [2, 2], [2, 2, 2]], [[2], [2], [2]]),
        # A reading is interrupted before its first new line.
        ([[1, 2, 3], [1], [1, 2], [1, 2, 3, 4]], [[1, 2, 3], [], [], [4]]),
        ([[], [], [1]], [[], [], [1]]),
        # The log is rotated, so its first lines are missing, or all lines that were shown are missing.
        ([[1, 2, 3], [2, 3, 4]], [[1, 2, 3], [4]]),
        ([[1, 2, 3], [4, 5, 4]], [[1, 2, 3], [4, 5, 4]]),
        ([[7, 8, 3, 4], [3, 4, 5]], [[7, 8, 3, 4], [5]]),
        ([[7, 8, 3], [4, 9, 5]], [[7, 8, 3], [9, 5]]),
    ],
)
def test_each_read_returns_only_new_lines(readings: list[list[int]], expected: list[list[int]]) -> None:
    assert shown(*readings) == expected


RUNS = st.lists(st.integers(0, 10**20), unique=True, max_size=12).flatmap(
    lambda times: st.tuples(*(st.integers(1, 3).map(lambda count, at=at: [at] * count) for at in times))
)


@given(RUNS, st.lists(st.integers(0, 40), max_size=6))
def test_each_line_is_shown_once_despite_clock_changes(runs: tuple[list[int], ...], ends: list[int]) -> None:
    whole = [at for run in runs for at in run]
    readings = [whole[:end] for end in ends]
    assert list(chain(*shown(*readings, whole))) == whole


@given(
    st.lists(st.integers(0), unique=True, max_size=30).map(sorted),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=6),
)
def test_a_rotated_log_shows_its_remaining_lines_once(whole: list[int], parts: list[tuple[int, int]]) -> None:
    begins = sorted(begin for begin, _ in parts)
    readings = [whole[begin:end] for begin, (_, end) in zip(begins, parts, strict=True)]
    found = shown(*readings)
    for number, (reading, fresh) in enumerate(zip(readings, found, strict=True)):
        before = {at for earlier in readings[:number] for at in earlier}
        newest = max(before, default=None)
        assert fresh == [at for at in reading if newest is None or at > newest]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("1970-01-01T00:00:00Z ", (0, "")),
        ("1970-01-01T00:00:00Z", (0, "")),
        ("1970-01-01T00:00:01.5Z [1/0] step 1", (1_500_000_000, "[1/0] step 1")),
        ("1970-01-01T00:00:00.000000001Z  two", (1, " two")),
        ("1970-01-01T02:00:00.123456789+02:00 a", (123_456_789, "a")),
        ("1969-12-31T20:30:00-03:30 a", (0, "a")),
        ("1969-12-31T23:59:59.999999999Z a", (-1, "a")),
        ("unable to retrieve container logs", (None, "unable to retrieve container logs")),
        ("1970-01-01T00:00:00 a", (None, "1970-01-01T00:00:00 a")),
        ("1970-13-01T00:00:00Z a", (None, "1970-13-01T00:00:00Z a")),
        ("1970-01-01T00:00:00.1234567890Z a", (None, "1970-01-01T00:00:00.1234567890Z a")),
    ],
)
def test_times_are_split_off_lines(line: str, expected: tuple[int | None, str]) -> None:
    assert split_timestamp(line) == expected


@given(
    st.integers(0, 4 * 10**18),
    st.integers(-23 * 60, 23 * 60),
    st.integers(0, 9),
    st.text(st.characters(exclude_characters="\n")),
)
def test_a_time_with_any_offset_is_parsed_to_the_nanosecond(
    at: int, minutes: int, digits: int, text: str
) -> None:
    at -= at % 10 ** (9 - digits)
    seconds, fraction = divmod(at, 10**9)
    local = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).astimezone(
        timezone(timedelta(minutes=minutes))
    )
    stamp = local.isoformat()
    part = f".{fraction:09}"[: digits + 1] if digits else ""
    assert split_timestamp(f"{stamp[:19]}{part}{stamp[19:]} {text}") == (at, text)
