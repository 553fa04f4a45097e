"""Tests of the sweep bench: its fleets, the rules of other projects, and its confidence intervals."""

from __future__ import annotations

import pytest
from e2e.bench.guard.sweep import count
from e2e.bench.guard.sweeping.fleets import Case, Fleet, Noise
from e2e.bench.guard.sweeping.intervals import share
from e2e.bench.guard.sweeping.rules import RULES

from convoy_workloads.bench.figures import Figures, Metric

QUIET = Noise(fleet=0.0, test=1e-6)


@pytest.mark.parametrize(
    ("rule", "slow", "found"),
    [
        ("Convoy", 1.08, True),
        ("10 % margin and second pass", 1.08, False),
        ("10 % margin and second pass", 1.12, True),
        ("30 % margin and second pass", 1.25, False),
        ("30 % margin and second pass", 1.35, True),
        ("two rounds, 2 x median", 1.9, False),
        ("two rounds, 2 x median", 2.1, True),
    ],
)
def test_without_noise_every_rule_is_exact(rule: str, slow: float, found: bool) -> None:
    fleet = Fleet(Case("", 32, 1, slow, QUIET), (1,))
    assert RULES[rule](fleet, 0).failed == (fleet.faulty if found else frozenset())


def test_every_rule_sees_the_same_fleets() -> None:
    case = Case("", 64, 6, 1.1)
    assert Fleet(case, (3, 4)).faulty == Fleet(case, (3, 4)).faulty != Fleet(case, (3, 5)).faulty


def test_counts_cover_all_fleets_of_a_seed() -> None:
    found = count(Case("", 32, 2, 1.5, QUIET), "Convoy", 10, 3)
    assert (found.found, found.wrong, found.faulty, found.nodes, found.fleets) == (6, 0, 6, 96, 3)
    assert found.tests >= 3 * 32


def test_an_interval_contains_its_share_and_grows_when_seeds_differ() -> None:
    even, apart = share([(9, 10)] * 50), share([(10, 10)] * 45 + [(0, 10)] * 5)
    assert even.value == apart.value == 0.9
    assert even.low < 0.9 < even.high and even.low == pytest.approx(0.871, abs=0.003)
    assert apart.high - apart.low > 2 * (even.high - even.low)
    assert share([(10, 10)] * 50).low == pytest.approx(0.992, abs=0.001)
    assert share([(0, 0)]).value is None


def test_an_interval_replaces_the_spread() -> None:
    figures = Figures()
    figures.add(Metric("a", "share", spread="95 %"), 0.5)
    assert figures.row("a")["spread"] == "95 %"
