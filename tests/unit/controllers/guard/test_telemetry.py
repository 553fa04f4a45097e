"""Tests of how windows become tables. Each table comes once and in order, even if windows are late,
repeated, invalid or missing.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_controllers.guard.telemetry import (
    Collective,
    Layout,
    Table,
    Window,
    joined,
    parse_members,
    tabulate,
    window_of,
)
from convoy_controllers.guard.window_collector import WindowCollector


def window(rank: int, step: int = 1, *, wall: float = 1.0, **more: object) -> Window:
    return Window(**{"rank": rank, "first": step, "last": step, "wall": wall, "compute": 0.5, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("step", "length", "span"),
    [(1, 1, (1, 1)), (1, 4, (1, 4)), (4, 4, (1, 4)), (5, 4, (5, 8)), (1000, 256, (769, 1024))],
)
def test_windows_are_aligned(step: int, length: int, span: tuple[int, int]) -> None:
    assert window_of(step, length) == span


@given(st.integers(1, 10**6), st.integers(0, 8), st.integers(0, 8))
def test_longer_window_consists_of_whole_shorter_windows(step: int, one: int, other: int) -> None:
    short, long = sorted((2**one, 2**other))
    first, last = window_of(step, long)
    assert window_of(first, short)[0] == first and window_of(last, short)[1] == last


def test_host_time_is_the_unexplained_remainder() -> None:
    assert window(0, optimizer=0.1, data=0.05, wait=0.2, save=0.05).host == pytest.approx(0.1)
    assert window(0, wall=0.4).host == 0


def test_a_table_has_a_column_for_every_rank() -> None:
    collective = Collective("dp", "dp", (range(2),), 8, 2, 0.3)
    table = tabulate([window(2, tokens=7, micro=(1, 2)), window(0, collectives=(collective,))], 3)
    assert table.reported.tolist() == [True, False, True]
    np.testing.assert_equal(table.tokens, [np.nan, np.nan, 7])
    np.testing.assert_equal(table.host, [0.5, np.nan, 0.5])
    (group,) = table.groups
    np.testing.assert_equal(group.seconds, [0.3, np.nan])
    assert (group.name, group.bytes, group.count, group.members.tolist()) == ("dp", 8, 2, [0, 1])


def groups(*reports: tuple[int, Collective], size: int = 8) -> list[tuple[str, list[float]]]:
    found = tabulate([window(rank, collectives=(one,)) for rank, one in reports], size).groups
    return [(one.name, one.seconds.tolist()) for one in found]


def test_reports_of_foreign_communicators_are_ignored() -> None:
    four = Collective("tp", "tp", (range(4),), 8, 1, 0.5)
    ((name, seconds),) = groups((0, four), (1, four))
    np.testing.assert_equal(seconds, [0.5, 0.5, np.nan, np.nan])
    assert name == "tp"
    assert groups((4, four), (5, four), (6, four)) == [], "no members"
    assert groups((0, four)) == [], "one of four"


def test_rank_with_a_different_transfer_is_not_compared() -> None:
    pair = Collective("tp", "tp", (range(3),), 8, 1, 0.5)
    found = tabulate(
        [window(at, collectives=(replace(pair, bytes=8 + at // 2, count=1 + at),)) for at in range(3)], 3
    )
    (group,) = found.groups
    np.testing.assert_equal(group.seconds, [0.5, 0.5, np.nan])
    assert (group.bytes, group.count) == (8, 1)


@pytest.mark.parametrize(
    "reports",
    [
        "",
        "a",
        "0-",
        "-3",
        "3-1",
        "0-3:0",
        "0,0",
        "4,2",
        "0-9:2,8",
        "0-8",
        "1,,2",
        "٣",
        "00",
        "0-03",
        "0" * 99,
        "5",
    ],
)
def test_members_outside_the_job_are_rejected(reports: str) -> None:
    assert parse_members(reports, 8) is None


def test_a_rank_with_other_micro_batches_is_not_compared_by_them() -> None:
    table = tabulate([window(0, micro=(1, 1)), window(1, micro=(1,)), window(2, micro=(2, 2))], 3)
    np.testing.assert_equal(table.micro, [[1, 1], [np.nan, np.nan], [2, 2]])


def test_a_table_of_different_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="same steps"):
        tabulate([window(0), window(1, 2)], 2)
    with pytest.raises(ValueError, match="same steps"):
        tabulate([], 2)


def test_layout_computes_peers() -> None:
    layout = Layout.of([0, 0, 1, 1, 0], [0, 1, 0, 1, 2], hardware=[0, 0, 0, 0, 1])
    assert layout.peers.tolist() == [0, 0, 2, 2, 1]
    with pytest.raises(ValueError, match="differ in length"):
        Layout.of([0, 0], [0])


def test_tables_are_ordered_and_wait_for_silent_ranks_up_to_a_limit() -> None:
    collector = WindowCollector(2, patience=2)
    assert collector.add(0, window(0, 1)) == ()
    assert collector.add(0, window(0, 2)) == () and collector.add(0, window(1, 2)) == ()
    (one, two) = collector.add(0, window(0, 3))
    assert (one.first, one.reported.tolist()) == (1, [True, False])
    assert (two.first, two.reported.tolist()) == (2, [True, True])
    (three,) = collector.add(0, window(1, 3))
    assert three.first == 3 and collector.open == 0 and collector.dropped == 0


@pytest.mark.parametrize(
    ("incarnation", "bad"),
    [
        pytest.param(0, window(0, 1), id="late"),
        pytest.param(0, window(0, 2), id="twice"),
        pytest.param(1, window(1, 2), id="another incarnation's"),
        pytest.param(0, window(2, 2), id="no such rank"),
        pytest.param(0, window(1, 2, wall=float("nan")), id="not a number"),
        pytest.param(0, window(1, 2, wall=-1.0), id="negative"),
        pytest.param(0, window(1, 2, micro=(0.0,)), id="no time at all"),
        pytest.param(0, window(1, 2, last=3), id="across"),
        pytest.param(0, window(1, 3, last=2), id="backwards"),
        pytest.param(0, window(1, 1, last=3), id="of a length that is no power of two"),
        pytest.param(0, window(1, 1, last=16), id="of steps that are over, too"),
        pytest.param(0, window(1, 2, last=2 + 4096), id="much longer than others'"),
    ],
)
def test_invalid_windows_are_dropped(incarnation: int, bad: Window) -> None:
    collector = WindowCollector(2)
    collector.add(0, window(0, 1))
    collector.add(0, window(1, 1))
    collector.add(0, window(0, 2))
    assert collector.add(incarnation, bad) == () and collector.dropped == 1
    (table,) = collector.add(0, window(1, 2))
    assert table.reported.all()


@given(st.randoms(use_true_random=False), st.lists(st.sampled_from([1, 2, 4, 8]), min_size=3, max_size=3))
def test_windows_of_different_length_are_combined(random: Random, lengths: list[int]) -> None:
    """Add windows of three ranks in a random order. The ranks' windows span 1 to 8 steps. Each step must be
    in exactly one table, and the table must have each rank's sum over its steps.
    """
    collector, steps = WindowCollector(3, patience=100), 16
    reports = [
        [
            window(
                rank, first, last=first + length - 1, wall=1.0 * length, compute=0.5 * length, tokens=length
            )
            for first in range(1, steps + 1, length)
        ]
        for rank, length in enumerate(lengths)
    ]
    tables: list[Table] = []
    while rest := [one for one in reports if one]:
        tables += collector.add(0, random.choice(rest).pop(0))
    assert collector.dropped == 0 and collector.open == 0
    assert [table.first for table in tables] == [1, *(table.last + 1 for table in tables[:-1])]
    assert tables[-1].last == steps
    for table in tables:
        for column, each in ((table.wall, 1.0), (table.compute, 0.5), (table.tokens, 1)):
            assert column.tolist() == [each * table.steps] * 3


def test_joined_windows_are_sums() -> None:
    dp = Collective("g", "dp", (range(2),), 100, 2, 0.25)
    quicker = replace(dp, count=1, seconds=0.125)
    one = window(3, 1, micro=(0.1, 0.2), collectives=(dp,), clock=0.5, save=0.125)
    other = window(3, 2, micro=(0.3, 0.4), collectives=(quicker,), throttled=True, data=0.25)
    found = joined([other, one])
    assert (found.first, found.last, found.wall, found.compute) == (1, 2, 2.0, 1.0)
    assert (found.save, found.data, found.clock, found.throttled) == (0.125, 0.25, 0.75, True)
    assert found.micro == pytest.approx((0.4, 0.6))
    (both,) = found.collectives
    assert (both.bytes, both.count, both.seconds) == (100, 3, 0.125), "of the quickest"
    larger = replace(dp, bytes=101, count=1, seconds=9.0)
    assert dp.joined(larger) == larger.joined(dp) == larger
    assert joined([window(3, 1, micro=(0.1,)), other]).micro == ()
    with pytest.raises(ValueError, match="of a single rank"):
        joined([one, window(1, 2)])


def test_resize_resets_the_collector() -> None:
    collector = WindowCollector(2)
    collector.add(0, window(0, 7))
    collector.reset(1, 1)
    assert collector.add(0, window(0, 8)) == () and collector.dropped == 1
    (table,) = collector.add(1, window(0, 1))
    assert table.size == 1


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 12)), max_size=80), st.integers(0, 3))
def test_collected_steps_increase_and_memory_is_bounded(
    reports: list[tuple[int, int]], patience: int
) -> None:
    collector, done, reported = WindowCollector(4, patience=patience), 0, set()
    for rank, step in reports:
        for table in collector.add(0, window(rank, step)):
            assert table.first > done
            done = table.first
            ranks = {(int(one), table.first) for one in np.nonzero(table.reported)[0]}
            assert ranks <= {*reported, (rank, step)}
        reported.add((rank, step))
        assert collector.open <= patience + 1
