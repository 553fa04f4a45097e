"""Tests of the statistics: textbook values, invariances and degenerate data."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from convoy_workloads.experiments import effects, power
from convoy_workloads.experiments.controls import safe_p
from convoy_workloads.experiments.holm import holm
from convoy_workloads.experiments.intervals import (
    attained_level,
    expanded_level,
    mean_interval,
    ratio_interval,
)
from convoy_workloads.experiments.permutation import Side, sign_flip

DARWIN = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
"""Height differences (eighths of an inch) of 15 pairs of cross- and self-fertilised plants: R. A. Fisher, The
Design of Experiments, section 21.
"""
SERIES = st.lists(st.integers(-50, 50).map(float), min_size=1, max_size=8)


def p(differences: list[float], side: str = "two-sided") -> float:
    return float(sign_flip(differences, side, 1000, 1))  # type: ignore[arg-type]


def test_the_exact_test_counts_the_combinations_of_signs() -> None:
    # There are 2^3 sums of +-1 +-2 +-3: one is 6, two are 4 or more, four are above 0.
    assert p([1, 2, 3], "greater") == 1 / 8
    assert p([-1, 2, 3], "greater") == 2 / 8
    assert p([1, 2, 3]) == 2 / 8
    assert p([1, 2, 3], "less") == 1


def test_fishers_test_of_darwins_plants() -> None:
    # Fisher counted 863 of the 2^15 sums on each side: p = 1726 / 32768 = 0.0527.
    differences = [float(one) for one in DARWIN]
    assert float(sign_flip(differences, "two-sided", 40_000, 1)) == pytest.approx(0.0527, abs=0.004)


def test_the_t_test_of_darwins_plants_decides_where_the_blocks_are_few() -> None:
    differences = [float(one) for one in DARWIN]
    assert safe_p(differences, "two-sided", 1000, enough=1e-9, seed=1) == pytest.approx(0.0497, abs=1e-4)


@settings(max_examples=20, deadline=None)
@given(SERIES)
def test_the_other_direction_has_the_same_p_value(differences: list[float]) -> None:
    mirrored = [-one for one in differences]
    assert p(differences) == pytest.approx(p(mirrored))
    assert p(differences, "greater") == pytest.approx(p(mirrored, "less"))


@settings(max_examples=20, deadline=None)
@given(SERIES)
def test_the_order_of_the_blocks_does_not_matter(differences: list[float]) -> None:
    assert p(differences) == pytest.approx(p(sorted(differences)))


def test_several_series_are_tested_at_once() -> None:
    series = [[1.0, 2.0, 3.0], [1.0, -2.0, 3.0]]
    assert [float(one) for one in sign_flip(series, "two-sided", 1000, 1)] == [p(one) for one in series]


@pytest.mark.parametrize("differences", [[], [3.0], [0.0] * 5])
def test_no_evidence_gives_the_p_value_1(differences: list[float]) -> None:
    assert p(differences) == 1
    assert safe_p(differences, "two-sided", 1000, 0.001, 1) == 1


def test_equal_differences_are_certain_where_so_few_blocks_cannot_be() -> None:
    assert safe_p([2.0, 2.0], "greater", 1000, 0.01, 1) == 0
    assert safe_p([2.0, 2.0], "less", 1000, 0.01, 1) == 1


def test_holms_correction() -> None:
    # Sorted: 0.01 x 4, 0.02 x 3, 0.03 x 2, 0.04 x 1, never falling.
    assert holm([0.01, 0.04, 0.03, 0.02]) == pytest.approx([0.04, 0.06, 0.06, 0.06])
    assert holm([]) == []
    raw = [0.2, 0.001, 0.9, 0.04, 0.04, 0.012]
    assert holm(raw) == pytest.approx(list(multipletests(raw, method="holm")[1]))


def test_the_ends_of_an_interval_are_means_of_subsets() -> None:
    # The 7 means of 1, 2, 6 are 1, 1.5, 2, 3, 3.5, 4, 6; between two neighbours the truth lies with 1/8.
    assert mean_interval([1, 2, 6], 0.75, 1000, 1) == (1, 6)
    assert mean_interval([1, 2, 6], 0.5, 1000, 1) == (1.5, 4)
    assert [attained_level(3, level) for level in (0.5, 0.6, 0.75, 0.99)] == [0.5, 0.75, 0.75, 0.75]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(-50, 50).map(float), min_size=6, max_size=8), st.integers(-60, 60))
def test_the_interval_contains_exactly_the_thresholds_that_the_test_keeps(
    values: list[float], threshold: int
) -> None:
    low, high = mean_interval(values, 0.95, 1000, 1) or (0, 0)
    kept = p([one - threshold for one in values]) > 0.05
    assert kept is (low <= threshold <= high)


def test_the_interval_of_many_normal_values_is_that_of_student() -> None:
    normal = statistics.NormalDist(10, 2)
    values = [normal.inv_cdf((at + 0.5) / 40) for at in range(40)]
    found = mean_interval(values, 0.95, 20_000, 1)
    reach = 2.023 * statistics.stdev(values) / math.sqrt(40)
    assert found == pytest.approx((10 - reach, 10 + reach), abs=0.06 * reach)
    assert attained_level(40, 0.95) == 0.95


@pytest.mark.parametrize(
    ("values", "interval"),
    [([], None), ([1.0], None), ([2.0, 2.0, 2.0], (2.0, 2.0)), ([1.0, 2.0], (1.0, 2.0))],
)
def test_intervals_of_few_and_of_equal_values(values: list[float], interval: object) -> None:
    assert mean_interval(values, 0.95, 1000, 1) == interval


def test_the_level_of_a_bootstrap_is_raised_for_few_values() -> None:
    assert expanded_level(0.95, 8) == pytest.approx(0.9886, abs=1e-3)
    assert expanded_level(0.95, 10_000) == pytest.approx(0.95, abs=1e-3)


def test_the_interval_of_a_ratio_belongs_to_pairs() -> None:
    first, second = [2.0, 4.0, 6.0], [1.0, 2.0, 3.0]
    assert ratio_interval(first, second, 0.95, 1000, 1) == (2.0, 2.0)
    assert ratio_interval(first, [0.0, 2.0, 3.0], 0.95, 1000, 1) is None
    low, high = ratio_interval([2.0, 4.1, 6.0, 7.5], [1.0, 2.0, 3.2, 4.0], 0.95, 1000, 1) or (0, 0)
    assert 1.5 < low < 19.6 / 10.2 < high < 2.5


def test_effect_sizes() -> None:
    assert effects.standardised([1.0, 2.0, 3.0]) == 2
    assert effects.standardised([1.0, 1.0]) is None
    assert effects.cliffs_delta([1, 2, 3], [2, 3, 4], 1) == pytest.approx(-5 / 9)
    assert effects.cliffs_delta([1, 2, 3], [2, 3, 4], -1) == pytest.approx(5 / 9)
    assert effects.cliffs_delta([], [], 1) is None


@pytest.mark.parametrize(
    ("alpha", "family", "one_sided", "needed"),
    [(0.05, 1, False, 6), (0.05, 10, False, 9), (0.05, 1, True, 5), (0.01, 32, False, 13)],
)
def test_the_number_of_blocks_that_a_family_needs(
    alpha: float, family: int, one_sided: bool, needed: int
) -> None:
    assert power.blocks_needed(alpha, family, one_sided) == needed
    assert power.floor(needed, one_sided) <= alpha / family < power.floor(needed - 1, one_sided)
    assert power.standardised_minimum_effect(needed - 1, alpha / family, 0.8, one_sided) is None


@pytest.mark.parametrize("side", ["two-sided", "greater"])
@pytest.mark.parametrize(("blocks", "resamples"), [(10, 1000), (15, 1000), (15, 40_000), (20, 1000)])
def test_the_floor_is_the_p_value_of_equal_differences(side: Side, blocks: int, resamples: int) -> None:
    found = float(sign_flip([1.0] * blocks, side, resamples, 1))
    assert power.floor(blocks, side != "two-sided", resamples) == pytest.approx(found)


def test_a_control_fails_although_its_resamples_allow_no_small_p_value() -> None:
    differences = [50.0 + one % 3 for one in range(20)]
    assert float(sign_flip(differences, "two-sided", 1000, 1)) > 0.01 / 8
    assert safe_p(differences, "two-sided", 1000, 0.01 / 8, 1) < 1e-9


def test_too_few_resamples_have_no_minimum_effect() -> None:
    differences = [float(one) for one in range(20)]
    assert power.minimum_effect(differences, 0.05 / 32, 0.8, False, 1000) is None
    assert power.minimum_effect(differences, 0.05 / 32, 0.8, False, 10_000) is not None


def test_the_power_where_all_differences_must_have_one_sign() -> None:
    # With the smallest p-value, all n differences must be above 0: Phi(effect)^n = 0.8.
    wanted = statistics.NormalDist().inv_cdf(0.8 ** (1 / 6))
    found = power.standardised_minimum_effect(6, 2 / 2**6, 0.8, False)
    assert found == pytest.approx(wanted, abs=0.06)


def test_the_power_of_many_blocks_is_that_of_the_t_test() -> None:
    # G*Power: a paired t-test of 34 pairs finds d_z = 0.5 with the probability 0.81 (two-sided, 5 %).
    found = power.standardised_minimum_effect(34, 0.05, 0.808, False)
    assert found == pytest.approx(0.5, abs=0.005)


def test_the_minimum_effect_has_the_unit_of_the_differences() -> None:
    differences = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    found = power.minimum_effect(differences, 0.05, 0.8, False)
    times_ten = power.minimum_effect([10 * one for one in differences], 0.05, 0.8, False)
    assert found is not None and times_ten == pytest.approx(10 * found)
    assert power.minimum_effect([1.0], 0.05, 0.8, False) is None
