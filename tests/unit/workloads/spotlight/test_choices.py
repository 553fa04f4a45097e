"""Tests of the choices between two iterations: planners, selection of samples, and the canary."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from convoy_workloads.engines.spotlight.canary import (
    Probe,
    StalenessGuard,
    draw_probes,
    mean_spearman,
    spearman,
)
from convoy_workloads.engines.spotlight.iteration import prompts_of
from convoy_workloads.engines.spotlight.planner import GainPlanner, UniformPlanner, contrast
from convoy_workloads.engines.spotlight.selection import max_variance


@pytest.mark.parametrize("seed", range(12))
def test_the_selection_has_the_largest_variance_of_all(seed: int) -> None:
    rewards = np.random.default_rng(seed).beta(0.3, 2.0, 9)
    size = 2 + seed % 5
    best = max(np.var([rewards[one] for one in chosen]) for chosen in combinations(range(9), size))
    chosen = max_variance(list(rewards), size)
    assert len(set(chosen)) == size
    assert np.var(rewards[chosen]) == pytest.approx(best)


@pytest.mark.parametrize(
    ("rewards", "chosen"),
    [
        ([], []),
        ([0.5], [0]),
        ([1, 0, 0.5], [0, 1, 2]),
        ([1, 1, 1, 1, 1], [0, 1, 3, 4]),
        ([0, 1, 0.5, 0, 1], [0, 1, 3, 4]),
    ],
)
def test_few_or_equal_rewards_have_a_selection(rewards: list[float], chosen: list[int]) -> None:
    assert max_variance(rewards, 4) == chosen


def test_the_rank_correlation_is_that_of_scipy() -> None:
    random = np.random.default_rng(1)
    for _ in range(5):
        first = random.integers(0, 5, 12)
        second = first + random.integers(0, 4, 12)
        assert spearman(list(first), list(second)) == pytest.approx(stats.spearmanr(first, second).statistic)


@pytest.mark.parametrize("values", [([1, 2], [1, 2]), ([1, 2, 3, 4], [5, 5, 5, 5]), ([], [])])
def test_a_correlation_of_too_little_is_unknown(values: tuple[list[float], list[float]]) -> None:
    assert spearman(*values) is None


def test_a_low_correlation_forbids_stale_weights_for_one_iteration() -> None:
    guard = StalenessGuard(0.7)
    allowed = []
    for correlation in (0.9, 0.69, None, 0.7):
        guard.record(correlation)
        allowed.append(guard.stale_allowed)
    assert allowed == [True, False, True, True]
    assert guard.trips == 1


def test_the_uniform_planner_gives_equal_shares_up_to_the_most() -> None:
    planner = UniformPlanner(3)
    planner.start([5, 7])
    assert [planner.next_prompt() for _ in range(8)] == [5, 7, 5, 7, 5, 7, None, None]


@pytest.mark.parametrize("size", [4, 5])
def test_the_contrast_is_that_of_the_best_choice(size: int) -> None:
    for good in range(7):
        for bad in range(7):
            rewards = [1.0] * good + [0.0] * bad
            if len(rewards) >= size:
                best = np.std([rewards[one] for one in max_variance(rewards, size)])
                assert contrast(good, bad, size) == pytest.approx(best)


def test_the_gain_planner_prefers_prompts_that_lack_samples() -> None:
    planner = GainPlanner(max_seeds=50, group_size=4)
    planner.start([1, 2])
    for reward in (1.0, 1.0, 0.0, 0.0):
        planner.record(1, reward)
        planner.record(2, 0.0)
    assert {planner.next_prompt() for _ in range(20)} == {2}
    planner.record(2, 1.0)
    planner.record(2, 1.0)
    assert planner.next_prompt() is None


def test_the_gain_planner_remembers_which_prompts_are_easy() -> None:
    planner = GainPlanner(max_seeds=50, group_size=8)
    planner.start([1, 2])
    for _ in range(10):
        planner.record(1, 1.0)
        planner.record(2, 0.0)
    planner.start([3])
    planner.start([1, 2])
    for prompt in (1, 2):
        for _ in range(4):
            planner.record(prompt, 0.0)  # The bad halves are full, so only good samples are missing.
    saved = planner.state_dict()
    other = GainPlanner(max_seeds=50, group_size=8)
    other.load_state_dict(saved)
    for one in (planner, other):
        assert [one.next_prompt() for _ in range(10)].count(1) > 5


def test_each_prompt_has_its_turn() -> None:
    turns = [prompts_of(3, number, 8, 32) for number in range(8)]
    for half in (turns[:4], turns[4:]):
        assert sorted(prompt for turn in half for prompt in turn) == list(range(32))
    assert turns[:4] != turns[4:]
    assert prompts_of(3, 2, 3, 7) != prompts_of(4, 2, 3, 7)


def test_ranks_count_within_a_prompt_only() -> None:
    # Both prompts' seeds are ranked the other way round. The easy prompt has the higher rewards all the same.
    hard = [(0.1, 0.4), (0.2, 0.3), (0.3, 0.2), (0.4, 0.1)]
    easy = [(stale + 10, fresh + 10) for stale, fresh in hard]
    pooled = [*hard, *easy]
    assert (spearman([one for one, _ in pooled], [two for _, two in pooled]) or 0.0) > 0.5
    assert mean_spearman([hard, easy]) == pytest.approx(-1.0)
    assert mean_spearman([[(1.0, 1.0)] * 4]) is None


def test_probes_are_seeds_of_prompts_whose_rewards_differ() -> None:
    def explored(prompt: int, rewards: list[float]) -> list[Probe]:
        return [Probe(prompt, seed, reward) for seed, reward in enumerate(rewards)]

    prompts = [explored(0, [1.0] * 9), explored(1, [0.1, 0.2, 0.3]), explored(2, [0.1, 0.2, 0.3, 0.4, 0.5])]
    for seed in range(20):
        found = draw_probes(prompts, 8, np.random.default_rng(seed))
        assert {one.prompt for one in found} == {2} and len({one.seed for one in found}) == len(found) == 4
    assert not draw_probes(prompts, 0, np.random.default_rng(1))
