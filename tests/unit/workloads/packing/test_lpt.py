"""Tests of the assignment of the longest job first."""

from __future__ import annotations

import random
from itertools import product

import pytest
from tests.cases import cases

from convoy_workloads.packing.lpt import NoRoomError, assign


def largest(costs: list[float], bins: list[list[int]]) -> float:
    return max(sum(costs[job] for job in jobs) for jobs in bins)


def test_the_largest_load_is_within_the_bound_of_graham() -> None:
    for seed in range(cases(15)):
        rng = random.Random(seed)
        costs, bins = [float(rng.randint(1, 20)) for _ in range(6)], rng.randint(1, 3)
        found = assign(costs, bins)
        assert sorted(job for jobs in found for job in jobs) == list(range(6))
        best = min(
            largest(costs, [[job for job in range(6) if where[job] == one] for one in range(bins)])
            for where in product(range(bins), repeat=6)
        )
        assert largest(costs, found) <= (4 / 3 - 1 / (3 * bins)) * best + 1e-9


def test_a_bin_without_room_is_passed_over() -> None:
    assert assign([9, 5, 4], 2, sizes=[1, 2, 2], capacity=3) == [[0, 2], [1]]
    assert assign([9, 5, 1], 2, sizes=[1, 2, 2], capacity=3) == [[0, 2], [1]]


def test_a_job_without_room_and_no_bins_are_errors() -> None:
    with pytest.raises(NoRoomError, match="job 0 of size 4 fits into none of 2 bins"):
        assign([1.0], 2, sizes=[4], capacity=3)
    with pytest.raises(ValueError, match="bins: 0"):
        assign([1.0], 0)
