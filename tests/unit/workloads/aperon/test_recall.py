"""Tests of recall: its estimate, its bounded cost, and settings for a target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.unit.workloads.aperon.aperon_index import clustered, made

from convoy_workloads.engines.aperon.errors import InvalidInput, TargetNotReached
from convoy_workloads.engines.aperon.recall import RecallMonitor, estimate, recalls
from convoy_workloads.engines.aperon.settings import SearchSettings
from convoy_workloads.engines.aperon.tuning import ladder, tune


def test_the_interval_has_the_values_of_wilson() -> None:
    """The values are those of statsmodels' proportion_confint(49, 50, method="wilson")."""
    found = estimate(np.array([1.0] * 49 + [0.0]))
    assert found.mean == 0.98 and found.queries == 50
    assert found.low == pytest.approx(0.89505, abs=1e-4) and found.high == pytest.approx(0.99646, abs=1e-4)
    assert estimate(np.ones(10)).high == 1


def test_the_monitor_estimates_the_recall_of_the_settings_in_use(tmp_path: Path) -> None:
    vectors, queries = clustered(1500, 30), clustered(150, 30, seed=7)
    with made(tmp_path, vectors, grains=15, dims=8) as index:
        index.set_search_settings(SearchSettings(1, 10))
        monitor = RecallMonitor(index, share=1, budget=1)
        assert monitor.estimate() is None and not monitor.measure()
        for query in queries:
            monitor.offer(query[None], 10)
            while monitor.measure():
                pass
        found = monitor.estimate()
        true = recalls(index.search(queries, 10), index.search(queries, 10, exact=True)).mean()
        assert found and found.mean == pytest.approx(true) and 0.2 < true < 0.95
        assert found.low < true < found.high and monitor.queries().shape == (150, 30)
        monitor.restart()
        assert monitor.estimate() is None


def test_exact_searches_use_no_more_than_their_budget(tmp_path: Path) -> None:
    time = [100.0]

    def clock() -> float:
        time[0] += 0.5
        return time[0]

    with made(tmp_path, clustered(50, 4)) as index:
        monitor = RecallMonitor(index, share=1, budget=0.1, clock=clock)
        monitor.offer(clustered(40, 4), 3)
        done = sum(monitor.measure() for _ in range(60))
        # Each comparison lasts one tick of 0.5 s. Of about 30 s, 3 may be used.
        assert 5 <= done <= 7


def test_tuning_picks_the_cheapest_settings_that_reach_the_target(tmp_path: Path) -> None:
    vectors, queries = clustered(1500, 30), clustered(100, 30, seed=7)
    with made(tmp_path, vectors, grains=15, dims=8) as index:
        low, high = tune(index, 0.6, queries), tune(index, 0.97, queries)
        assert index.search_settings == high.settings
        assert low.recall.mean >= 0.6 and high.recall.mean >= 0.97
        assert low.bytes_per_query < high.bytes_per_query
        true = recalls(index.search(queries, 10), index.search(queries, 10, exact=True)).mean()
        assert true == pytest.approx(high.recall.mean)


def test_a_target_out_of_reach_keeps_the_settings(tmp_path: Path) -> None:
    vectors, queries = clustered(1500, 30), clustered(100, 30, seed=7)
    with made(tmp_path, vectors, grains=15, dims=8) as index:
        with pytest.raises(TargetNotReached, match="settings are unchanged") as error:
            tune(index, 0.99, queries, most=SearchSettings(1, 20))
        assert error.value.margin == pytest.approx(0.99 - error.value.best) and error.value.margin > 0.05
        assert index.search_settings == SearchSettings()
        for target, sample in ((1.5, queries), (0.9, queries[:3])):
            with pytest.raises(InvalidInput):
                tune(index, target, sample)


def test_a_ladder_has_both_ends() -> None:
    assert ladder(1, 10) == [1, 2, 3, 4, 5, 6, 7, 8, 10]
    assert ladder(5, 5) == ladder(5, 3) == [5]
