"""Tests of memory and processor use, as computed from the lines that nodes print."""

from __future__ import annotations

import pytest
from e2e.bench.kit.usage import WARM_UP_SECONDS, Usage

PAGES = 256
"""Number of memory pages in one MiB."""


def test_the_summary_has_the_largest_values_of_each_name() -> None:
    usage = Usage()
    for number in range(30):
        lines = f"convoy-agent 7 {(50 + number) * PAGES} {100 * number} 0\n"
        lines += f"convoy-agent 9 {40 * PAGES} {50 * number} {100 * number}\n"
        usage.add_lines("n1", lines, 10.0 * number)
    usage.add_lines("n1", f"convoy-operator 3 {90 * PAGES} 1 1\n", 0.0)
    found = usage.summaries()
    assert (found["agent"].mib, found["agent"].cores) == pytest.approx((74.5, 0.15))
    assert found["operator"] == found["dashboard"] == (None, None, None)


def test_growth_begins_after_the_warm_up() -> None:
    usage = Usage()
    early = round(WARM_UP_SECONDS / 10)
    for number in range(early):
        usage.add_lines("n1", f"convoy-agent 7 {number * PAGES} {number} 0\n", 10.0 * number)
    assert usage.summaries()["agent"].growth is None
    for number in range(early, early + 30):
        usage.add_lines("n1", f"convoy-agent 7 {(100 + number - early) * PAGES} {number} 0\n", 10.0 * number)
    assert usage.summaries()["agent"].growth == pytest.approx(124.5 / 104.5)


def test_a_restarted_process_counts_as_another() -> None:
    usage = Usage()
    for number in range(30):
        usage.add_lines(
            "n1", f"convoy-dashboar {7 if number < 15 else 8} {number * PAGES} 0 0\n", float(number)
        )
    assert usage.summaries()["dashboard"].mib is None
    assert usage.summaries(15)["dashboard"].mib == 27
