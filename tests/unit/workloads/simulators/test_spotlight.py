"""Tests of the simulator spotlight: its figures, its end, and its perturbations."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from convoy_workloads.simulators.perturbation import Perturbation
from convoy_workloads.simulators.run import run
from convoy_workloads.simulators.simulator import InvalidSimulation, Outcome
from convoy_workloads.simulators.spotlight import SIMULATOR

SMALL: dict[str, Any] = {
    "problem": {
        "kind": "ring",
        "prompts": 4,
        "modes": 4,
        "width": 8,
        "pretrainingSteps": 2,
        "pretrainingBatch": 8,
    },
    "samplerSteps": 3,
    "promptsPerIteration": 2,
    "groupSize": 4,
    "maxSeeds": 12,
    "evaluationSeeds": 1,
    "steps": 8,
    "checkHours": 0.02,
    "checkSpend": 0.05,
    "cluster": {"bootSeconds": 5, "hours": 2, "zoneUpHours": 0.1, "zoneDownHours": 0.02},
}


def simulate(perturbation: dict[str, Any] | None = None, seed: int = 1, **params: Any) -> Outcome:
    found = Perturbation.model_validate(perturbation) if perturbation else None
    return run("spotlight", {**SMALL, **params}, seed, found)


def test_a_run_gives_all_figures_and_gives_them_again() -> None:
    found = simulate(target=1.0)
    assert found.figures.keys() == SIMULATOR.figures.keys()
    assert set(found.censored) == {"hoursToTarget", "costToTarget", "iterationsToTarget"}
    assert found.figures["iterationsToTarget"] == 8
    assert simulate(target=1.0) == found
    assert simulate(target=1.0, seed=2) != found


def test_a_run_ends_at_the_target_but_not_before_the_times_of_the_checks() -> None:
    found = simulate(target=0.0)
    assert found.censored == ()
    assert found.figures["iterationsToTarget"] == 2
    limited = simulate(target=1.0, limitHours=0.008)
    assert limited.figures["iterationsToTarget"] < 8 and limited.censored


def test_a_boot_delay_leaves_less_time_for_exploring() -> None:
    late = simulate({"kind": "BootDelay", "magnitude": 60})
    assert late.achieved == 60
    assert late.figures["exploredSeeds"] < simulate().figures["exploredSeeds"]


def test_the_losses_of_a_spot_trace_are_measured() -> None:
    found = simulate({"kind": "SpotTrace", "magnitude": 20})
    assert found.achieved == pytest.approx(20, rel=0.5)
    steady = simulate({"kind": "SpotTrace", "magnitude": 0})
    assert steady.achieved == 0
    assert steady.figures["offeredNodeHours"] > found.figures["offeredNodeHours"]
    alone = simulate({"kind": "SpotTrace", "magnitude": 20}, cluster={"spot": 0})
    assert alone.achieved is None


def test_a_perturbation_of_a_part_of_the_run_is_refused() -> None:
    with pytest.raises(InvalidSimulation, match="no start and no duration"):
        simulate({"kind": "BootDelay", "magnitude": 60, "start": 5})


def test_the_registry_is_imported_without_torch() -> None:
    code = "import sys, convoy_workloads.simulators.registry; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
