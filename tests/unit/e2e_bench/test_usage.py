"""Tests of memory and processor use, as computed from the lines that nodes print."""

from __future__ import annotations

import pytest
from e2e.bench.kit.usage import Usage

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
    assert found["agent"] == pytest.approx((74.5, 74.5 / 54.5, 0.15))
    assert found["operator"] == found["dashboard"] == (None, None, None)


def test_a_restarted_process_counts_as_another() -> None:
    usage = Usage()
    for number in range(30):
        usage.add_lines(
            "n1", f"convoy-dashboar {7 if number < 15 else 8} {number * PAGES} 0 0\n", float(number)
        )
    assert usage.summaries()["dashboard"].mib is None
    assert usage.summaries(15)["dashboard"].mib == 27
