"""Engines on the cluster with their small parameters: CI runs the first of each kind of job, e2e-full all."""

from __future__ import annotations

import re

import pytest

from convoy_workloads.engines.entry import EngineEntry
from convoy_workloads.engines.registry import ENGINES
from e2e.drive.jobs import Jobs

TRAINING = [entry for entry in ENGINES if entry.role_kind == "Training"]
END = re.compile(r"state after step (\d+): sha256 [0-9a-f]{64}")


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, id=entry.name, marks=pytest.mark.full if number else ())
        for number, entry in enumerate(TRAINING)
    ],
)
def test_it_trains_to_its_end_and_status_has_the_metrics_that_it_declares(
    jobs: Jobs, entry: EngineEntry
) -> None:
    name = f"engine-{entry.name}"
    jobs.create(name, engine={"name": entry.name, "params": dict(entry.small)})
    status = jobs.wait_phase(name, "Succeeded", 120)
    steps = entry.small["steps"]
    assert (status["progress"]["step"], status["progress"]["percent"]) == (steps, 100)
    reported = {one["name"] for one in status["progress"].get("metrics", ())}
    assert reported == {metric.name for metric in entry.metrics}
    assert jobs.condition(name, "MetricsDropped") == ("", "")
    assert END.findall(jobs.log(f"{name}-worker-0")) == [str(steps)]
