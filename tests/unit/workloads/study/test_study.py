"""Tests of paired runs and of the test of equivalence."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from convoy_workloads.study.equivalence import equivalence, not_worse
from convoy_workloads.study.paired_runs import paired_gain, run_paired


def test_all_arms_get_all_seeds_and_none_is_always_first() -> None:
    order: list[tuple[str, int]] = []

    def arm(name: str, seed: int) -> Mapping[str, float]:
        order.append((name, seed))
        return {"score": seed + (name == "b")}

    found = run_paired({"a": lambda seed: arm("a", seed), "b": lambda seed: arm("b", seed)}, [3, 1, 2])
    assert found == {"a": {"score": [3, 1, 2]}, "b": {"score": [4, 2, 3]}}
    assert order == [("a", 3), ("b", 3), ("b", 1), ("a", 1), ("a", 2), ("b", 2)]
    with pytest.raises(ValueError, match="a, b do not give the same figures"):
        run_paired({"a": lambda _: {"x": 1}, "b": lambda _: {"y": 1}}, [1])


def test_a_gain_has_an_interval_of_its_differences() -> None:
    gain = paired_gain([1.2, 1.4, 1.6, 1.5, 1.3], [1.0] * 5)
    assert gain.mean == pytest.approx(0.4)
    assert gain.low == pytest.approx(0.2) and gain.high == pytest.approx(0.6)
    assert gain.level == pytest.approx(1 - 2 / 32) and gain.p_value == pytest.approx(1 / 32)
    assert paired_gain([1.0] * 5, [1.2, 1.4, 1.6, 1.5, 1.3]).p_value == 1
    with pytest.raises(ValueError, match="at least two seeds"):
        paired_gain([1.0], [0.0])


def test_equivalence_needs_proof() -> None:
    small = [0.001, -0.002, 0.0015, 0.0, -0.001, 0.002]
    assert equivalence(small, 0.005).equivalent
    assert not equivalence(small, 0.0001).equivalent
    assert not equivalence(small[:4], 0.005).equivalent, "four seeds are too few"
    assert not equivalence([one + 0.01 for one in small], 0.005).equivalent
    with pytest.raises(ValueError, match="margin"):
        equivalence(small, 0.0)


def test_at_the_margin_equivalence_is_found_as_seldom_as_alpha_says() -> None:
    random = np.random.default_rng(0)
    found = sum(equivalence(random.normal(1.0, 0.3, 8).tolist(), 1.0).equivalent for _ in range(300))
    assert found / 300 < 0.09
    inside = sum(equivalence(random.normal(0.0, 0.3, 8).tolist(), 1.0).equivalent for _ in range(50))
    assert inside == 50


def test_what_is_not_worse_may_be_better() -> None:
    gains = [0.5, 0.4, 0.6, 0.5, 0.3]
    assert not_worse(gains, 0.01) == pytest.approx(1 / 32)
    assert not equivalence(gains, 0.01).equivalent
    assert not_worse([-one for one in gains], 0.01) == 1
    with pytest.raises(ValueError, match="margin"):
        not_worse(gains, 0.0)
