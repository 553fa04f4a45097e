"""Tests of the fit of T(b) = alpha + beta b."""

from __future__ import annotations

import itertools

import pytest

from convoy_workloads.engines.fmplex.cost_model import CostModel


def test_the_fit_finds_the_line() -> None:
    model = CostModel()
    for size in (1, 4, 16, 8, 2):
        model.observe("a", size, 0.004 + 0.0015 * size)
    for size in (1, 3, 16):
        assert model.cost("a", size) == pytest.approx(0.004 + 0.0015 * size)


def test_one_size_gives_a_cost_per_item() -> None:
    model = CostModel()
    for _ in range(3):
        model.observe("a", 4, 0.008)
    assert model.cost("a", 2) == pytest.approx(0.004)


@pytest.mark.parametrize("times", [{1: 0.010, 16: 0.002}, {1: 0.001, 2: 0.010, 16: 0.160}])
def test_the_cost_of_an_item_never_grows_with_the_batch(times: dict[int, float]) -> None:
    model = CostModel()
    for size, seconds in times.items():
        model.observe("a", size, seconds)
    costs = [model.cost("a", size) / size for size in range(1, 17)]
    assert all(one >= other - 1e-12 for one, other in itertools.pairwise(costs))
    assert all(one > 0 for one in costs)


def test_a_pause_of_the_machine_hardly_changes_the_fit() -> None:
    model = CostModel()
    for number in range(40):
        size = 1 + number % 16
        model.observe("a", size, 0.004 + 0.001 * size)
    model.observe("a", 8, 5.0)
    assert model.cost("a", 8) < 2 * 0.012


def test_the_fit_follows_a_slower_machine() -> None:
    model = CostModel()
    for factor in (1, 3):
        for number in range(300):
            size = 1 + number % 16
            model.observe("a", size, factor * (0.004 + 0.001 * size))
    assert model.cost("a", 8) == pytest.approx(3 * 0.012, rel=0.1)


def test_an_unknown_key_costs_the_mean() -> None:
    model = CostModel()
    assert model.cost("b", 3) > 0
    model.observe("a", 1, 0.002)
    model.observe("c", 1, 0.004)
    assert model.cost("b", 1) == pytest.approx(0.003)
