"""Tests that the fast functions for few values give the bits of numpy's own."""

from __future__ import annotations

import numpy as np
import pytest

from convoy_controllers.guard.robust import clipped, median, row_medians, spread, zeroed


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 16, 1001])
def test_the_median_has_the_bits_of_numpy(count: int) -> None:
    for seed in range(20):
        values = np.random.default_rng(seed).normal(0, 3, count)
        assert median(values) == np.median(values)


@pytest.mark.parametrize("count", [1, 2, 3, 8, 101])
def test_medians_of_rows_have_the_bits_of_numpy(count: int) -> None:
    values = np.random.default_rng(count).normal(0, 3, (5, count))
    assert np.array_equal(row_medians(values), np.median(values, axis=1))


def test_missing_values_become_zero() -> None:
    assert zeroed(np.array([1.0, np.nan, -2.0])).tolist() == [1.0, 0.0, -2.0]


def test_values_are_clipped_as_by_numpy() -> None:
    values = np.array([-3.0, 0.5, 2.0, 7.0, np.inf, -np.inf, np.nan])
    assert np.array_equal(clipped(values, 0.5, 4.0), np.clip(values, 0.5, 4.0), equal_nan=True)


def test_the_spread_ignores_missing_values() -> None:
    assert spread(np.array([1.0, np.nan, 2.0, 4.0])) == pytest.approx(1.4826)
    assert np.isnan(spread(np.full(3, np.nan)))
