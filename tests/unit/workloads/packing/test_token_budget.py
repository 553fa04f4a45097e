"""Tests of groups under a token budget."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from tests.cases import cases

from convoy_workloads.packing.token_budget import (
    group_by_cost,
    group_greedily,
    padded_tokens,
    padding_ratio,
    split_to,
)


def random_lengths(rng: random.Random, most: int = 30) -> list[int]:
    return [rng.randint(1, 40) for _ in range(rng.randint(0, most))]


@pytest.mark.parametrize(
    ("lengths", "budget", "groups"),
    [
        ([], 10, []),
        ([10], 10, [[0]]),
        ([2, 10, 3, 3], 10, [[1], [2, 3, 0]]),
        ([5, 5, 5], 10, [[0, 1], [2]]),
    ],
)
def test_groups_are_filled_from_the_longest_sample(
    lengths: list[int], budget: int, groups: list[list[int]]
) -> None:
    assert group_greedily(lengths, budget) == groups


@pytest.mark.parametrize("group", [group_greedily, lambda lengths, budget: group_by_cost(lengths, budget, 0)])
def test_a_sample_above_the_budget_is_an_error(group: object) -> None:
    with pytest.raises(ValueError, match="11 tokens exceeds the budget of 10"):
        group([3, 11], 10)  # type: ignore[operator]


def test_every_grouping_has_each_sample_once_and_respects_the_budget() -> None:
    for seed in range(cases(100)):
        rng = random.Random(seed)
        lengths, budget = random_lengths(rng), rng.choice((40, 80, 400))
        for groups in (group_greedily(lengths, budget), group_by_cost(lengths, budget, rng.randint(0, 50))):
            assert sorted(one for group in groups for one in group) == list(range(len(lengths)))
            assert all(padded_tokens(group, lengths) <= budget for group in groups)


def partitions(samples: list[int]) -> list[list[list[int]]]:
    if not samples:
        return [[]]
    first, rest = samples[0], samples[1:]
    return [
        [[first, *chosen], *others]
        for size in range(len(samples))
        for chosen in combinations(rest, size)
        for others in partitions([one for one in rest if one not in chosen])
    ]


def test_groups_by_cost_are_the_best_of_all_partitions() -> None:
    for seed in range(cases(10)):
        rng = random.Random(seed)
        lengths, overhead = [rng.randint(1, 12) for _ in range(6)], rng.choice((0, 3, 10))
        costs = [
            sum(padded_tokens(group, lengths) + overhead for group in groups)
            for groups in partitions(list(range(6)))
            if all(padded_tokens(group, lengths) <= 30 for group in groups)
        ]
        found = group_by_cost(lengths, 30, overhead)
        assert sum(padded_tokens(group, lengths) + overhead for group in found) == min(costs)


def test_the_largest_group_is_split_first_and_no_split_adds_padding() -> None:
    lengths = [10, 10, 9, 2, 1, 1]
    groups = split_to([[0, 1, 2], [3, 4, 5]], lengths, 3)
    assert [3, 4, 5] in groups and len(groups) == 3
    for seed in range(cases(100)):
        rng = random.Random(seed)
        lengths = random_lengths(rng)
        groups = group_greedily(lengths, 120)
        count = rng.randint(len(groups), len(lengths))
        parts = split_to(groups, lengths, count)
        assert len(parts) == count and all(parts)
        assert sorted(one for part in parts for one in part) == list(range(len(lengths)))
        assert padding_ratio(parts, lengths) <= padding_ratio(groups, lengths) + 1e-12


def test_too_few_samples_for_the_groups_are_an_error() -> None:
    with pytest.raises(ValueError, match="2 samples cannot form 3 groups"):
        split_to([[0, 1]], [4, 4], 3)


def test_padding_counts_every_sample_as_long_as_the_longest_of_its_group() -> None:
    assert padded_tokens([0, 1], [3, 5]) == 10
    assert padding_ratio([[0, 1]], [3, 5]) == pytest.approx(0.2)
    assert padding_ratio([], []) == 0
