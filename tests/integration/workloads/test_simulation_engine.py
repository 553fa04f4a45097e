"""Tests of the engine experiment-simulation as a local run: the real launcher gives the numbers of this
process.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest

from convoy_crds.trainingjob import TrainingJob
from convoy_workloads.engines.catalogue import engine
from convoy_workloads.engines.experiment_simulation import ENGINE
from convoy_workloads.local import LocalEnd, run_local
from convoy_workloads.simulators.run import run as simulate

from .conftest import WORKLOADS

SIMULATED: dict[str, Any] = {
    "simulator": "autoscaling",
    "params": {"seconds": 600, "policy": {"name": "hpa"}},
    "seed": 2**47,
}
TUNING: dict[str, Any] = {
    **SIMULATED,
    "action": "tune",
    "search": [{"path": "policy.target", "min": 30, "max": 90}],
    "trials": 4,
    "seeds": [1, 2],
    "figure": "weightedCost",
    "better": "Lower",
}


def run(params: dict[str, Any], checkpoints: Path | None = None) -> tuple[LocalEnd, str]:
    """Run the engine once. Return its end and its output."""
    spec = {
        "engine": {"name": "experiment-simulation", "params": params},
        "roles": [{"name": "worker", "replicas": 1}],
        "recovery": {"maxRestarts": 0},
    }
    job = TrainingJob.model_validate({"metadata": {"name": "simulation"}, "spec": spec})
    environment, out = {**os.environ, "PYTHONPATH": str(WORKLOADS)}, io.StringIO()
    end = run_local(job, engine(ENGINE), checkpoint_dir=checkpoints, out=out, environment=environment)
    return end, out.getvalue()


@pytest.mark.timeout(180)
def test_a_job_gives_the_figures_of_this_process() -> None:
    end, printed = run({"action": "run", **SIMULATED})
    assert end.exit_code == 0, printed
    assert end.result is not None
    assert end.result["figures"] == simulate("autoscaling", SIMULATED["params"], 2**47).figures


@pytest.mark.timeout(180)
def test_a_finished_tuning_that_starts_again_has_the_same_result_without_a_trial(tmp_path: Path) -> None:
    ended = [run(TUNING, tmp_path / "checkpoints") for _ in range(2)]
    (first, _), (again, printed) = ended
    assert first.result is not None and again.result is not None, printed
    assert "continues after step 4" in printed
    assert "step 1/4" not in printed
    assert first.result["trials"] == 4
    for name in ("values", "best", "trials", "log"):
        assert again.result[name] == first.result[name]


@pytest.mark.timeout(180)
def test_invalid_parameters_of_a_simulator_end_the_job_with_their_path() -> None:
    end, printed = run({"action": "run", "simulator": "autoscaling", "params": {"seconds": 1}})
    assert end.exit_code == 10
    assert "params.seconds: Input should be greater than or equal to 60" in printed
