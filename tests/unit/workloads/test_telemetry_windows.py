from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_workloads.runtime.telemetry.windows import MAX_MICRO, MAX_STEPS, SHRINK, TimeSpent, Windows


def windows_of(walls: list[float], first: int = 1) -> list[dict[str, Any]]:
    windows = Windows()
    found = (windows.step(first + index, TimeSpent(wall=wall)) for index, wall in enumerate(walls))
    return [one for one in found if one is not None]


def spans(windows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(one["first"], one["last"]) for one in windows]


def test_long_steps_are_reported_one_by_one() -> None:
    assert spans(windows_of([2.0, 2.0, 2.0])) == [(1, 1), (2, 2), (3, 3)]


def test_short_steps_are_merged_into_windows_of_about_a_second() -> None:
    found = windows_of([0.25] * 16)
    assert spans(found) == [(1, 1), (2, 2), (3, 4), (5, 8), (9, 12), (13, 16)]
    assert found[-1]["wall"] == 1.0


def test_a_window_shrinks_when_its_steps_become_long() -> None:
    found = spans(windows_of([0.25] * 8 + [3.0] * 4 + [3.0] * 2))
    assert found == [(1, 1), (2, 2), (3, 4), (5, 8), (9, 10), (11, 11), (12, 12), (13, 13), (14, 14)]


def test_a_window_ends_early_when_its_steps_become_long() -> None:
    """A rank that loses its processor must be reported within seconds, not after hundreds of slow steps."""
    found = windows_of([1 / 256] * 512 + [1.0] * 24)
    assert spans(found)[-5:] == [(513, 520), (521, 524), (525, 528), (529, 532), (533, 536)]
    assert sum(one["wall"] for one in found[:-5]) == pytest.approx(2.0)


def test_a_window_exchanges_if_each_of_its_steps_does() -> None:
    windows, found = Windows(), []
    for number, exchanges in enumerate((True, True, True, False, *[True] * 4), 1):
        window = windows.step(number, TimeSpent(wall=0.25, exchanges=exchanges))
        found += [window] if window else []
    assert [(one["first"], one.get("exchanges", False)) for one in found] == [
        (1, True), (2, True), (3, False), (5, True)
    ]  # fmt: skip


def test_no_window_exceeds_the_maximum_length() -> None:
    found = spans(windows_of([1e-6] * (3 * MAX_STEPS)))
    assert max(last - first + 1 for first, last in found) == MAX_STEPS


def test_a_gap_in_the_steps_starts_another_window() -> None:
    windows = Windows()
    for number in range(1, 5):
        windows.step(number, TimeSpent(wall=0.25))
    assert windows.length == 4
    assert windows.step(5, TimeSpent(wall=0.25)) is None
    assert windows.step(7, TimeSpent(wall=0.25)) is None  # Step 6 is missing, so its window is dropped.
    assert windows.step(8, TimeSpent(wall=0.25)) is None
    found = [windows.step(number, TimeSpent(wall=0.25)) for number in range(9, 13)][-1]
    assert found is not None
    assert (found["first"], found["last"], found["wall"]) == (9, 12, 1.0)


def test_a_run_that_resumes_inside_a_window_waits_for_the_next_window() -> None:
    windows = Windows()
    windows.length = 8
    found = [windows.step(number, TimeSpent(wall=0.2)) for number in range(4, 17)]
    assert [one and (one["first"], one["last"]) for one in found] == [None] * 12 + [(9, 16)]


def test_a_window_has_sums_and_omits_empty_quantities() -> None:
    windows = Windows()
    windows.length = 2
    parts = {"compute": 0.5, "optimizer": 0.1, "data": 0.2, "wait": 0.3, "save": 0.4}
    assert windows.step(1, TimeSpent(wall=2.0, tokens=3, micro=[0.25, 0.25], **parts)) is None
    found = windows.step(2, TimeSpent(wall=2.0, tokens=4, micro=[0.5, 0.125], **parts))
    sums = {"compute": 1.0, "optimizer": 0.2, "data": 0.4, "wait": 0.6, "save": 0.8}
    assert found == {"first": 1, "last": 2, "wall": 4.0, "tokens": 7, "micro": [0.75, 0.375], **sums}
    assert TimeSpent(wall=1.0).message(1, 1) == {"first": 1, "last": 1, "wall": 1.0}


@pytest.mark.parametrize("counts", [(2, 3), (1, 1), (MAX_MICRO + 1, MAX_MICRO + 1)])
def test_micro_batches_are_reported_only_when_comparable(counts: tuple[int, int]) -> None:
    windows = Windows()
    windows.length = 2
    windows.step(1, TimeSpent(wall=1.0, micro=[0.1] * counts[0]))
    found = windows.step(2, TimeSpent(wall=1.0, micro=[0.1] * counts[1]))
    assert found is not None
    assert "micro" not in found


@given(st.lists(st.floats(0.001, 10.0), min_size=1, max_size=400), st.integers(1, 1000))
def test_windows_are_aligned_do_not_overlap_and_lose_nothing(walls: list[float], first: int) -> None:
    found = windows_of(walls, first)
    for one in found:
        length = one["last"] - one["first"] + 1
        assert length & (length - 1) == 0
        assert one["last"] % length == 0
        inside = walls[one["first"] - first : one["last"] - first + 1]
        assert one["wall"] == pytest.approx(sum(inside), abs=1e-5)
    assert all(one["first"] > before["last"] for before, one in itertools.pairwise(found))
    if first == 1:
        assert all(one["first"] == before["last"] + 1 for before, one in itertools.pairwise(found))


@given(st.floats(0.002, 20.0))
def test_a_steady_run_is_reported_about_once_a_second(wall: float) -> None:
    found = windows_of([wall] * 2048)
    assert found[-1]["wall"] >= min(1.0, wall * MAX_STEPS) - 1e-6
    assert found[-1]["wall"] <= max(wall, SHRINK) + 1e-6
