"""Tests of the metrics of Experiments."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from convoy_operator.experiment_metrics import ExperimentMetrics


def test_blocks_runs_and_phases_are_counted_anew_each_time() -> None:
    registry = CollectorRegistry()
    metrics = ExperimentMetrics(registry)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    runs = [{"state": "Running"}, {"state": "Pending"}, {"state": "Failed"}]
    first = {"phase": "Running", "blocks": [{}, {}, {}], "failedBlocks": 1, "runs": runs, "staleResults": 2}
    metrics.show([first, {}])
    assert value("convoy_experiments", phase="Running") == 1
    assert value("convoy_experiments", phase="Pending") == 1
    assert value("convoy_experiment_blocks", state="succeeded") == 2
    assert value("convoy_experiment_blocks", state="failed") == 1
    assert value("convoy_experiment_runs") == 2
    assert value("convoy_experiment_stale_results") == 2
    metrics.show([])
    assert value("convoy_experiments", phase="Running") == 0
    assert value("convoy_experiment_runs") == 0
