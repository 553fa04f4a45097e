"""Tests of Engines on the cluster with their small parameters.

CI runs one training Engine; e2e-full runs all of them. e2e-full also runs each Engine's bench once at its
small size, which needs no cluster.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from convoy_workloads.bench.comparison import Bench
from convoy_workloads.bench.figures import FOLDER
from convoy_workloads.engines.entry import EngineEntry
from convoy_workloads.engines.registry import ENGINES
from e2e.drive.jobs import Jobs

BENCHED = [entry for entry in ENGINES if not entry.tool]
TRAINING = [entry for entry in BENCHED if entry.role_kind == "Training"]
END = re.compile(r"state after step (\d+): sha256 [0-9a-f]{64}")


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, id=entry.name, marks=pytest.mark.full if number else ())
        for number, entry in enumerate(TRAINING)
    ],
)
def test_an_engine_trains_to_its_end_and_status_has_its_declared_metrics(
    jobs: Jobs, entry: EngineEntry
) -> None:
    name = f"engine-{entry.name}"
    jobs.create(name, engine={"name": entry.name, "params": dict(entry.small)})
    status = jobs.wait_phase(name, "Succeeded", 120)
    steps = entry.small["steps"]
    assert (status["progress"]["step"], status["progress"]["percent"]) == (steps, 100)
    reported = {one["name"] for one in status["progress"].get("metrics", ())}
    assert reported == {metric.name for metric in entry.metrics if metric.always}
    assert jobs.condition(name, "MetricsDropped") == ("", "")
    assert END.findall(jobs.log(f"{name}-worker-0")) == [str(steps)]


@pytest.mark.full
@pytest.mark.timeout(1300)
@pytest.mark.parametrize("entry", BENCHED, ids=lambda entry: entry.name)
def test_a_small_benchmark_run_has_all_rows_and_publishes_nothing(entry: EngineEntry) -> None:
    published = FOLDER / f"engine-{entry.name}.json"
    before = published.read_bytes() if published.exists() else None
    command = [sys.executable, "-m", "convoy_workloads.bench", entry.name, "--size", "small", "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    bench: Bench = entry.module("bench").BENCH
    names = [f"{measure.name}: " for measure in bench.measures(bench.sizes["small"])]
    names += [f"equality: {equality.name}" for equality in bench.equal]
    for name in [*names, "negative control: "]:
        assert f"\n{name}" in f"\n{done.stdout}"
    assert (published.read_bytes() if published.exists() else None) == before
