"""Tests of the simulators' reference page."""

from __future__ import annotations

import math

from convoy_crds.perturbations import Backend, perturbation_type
from convoy_workloads.simulators.page import page
from convoy_workloads.simulators.registry import SIMULATORS


def test_the_page_has_every_simulator_with_its_own_models_but_no_model_of_a_kind() -> None:
    text = page()
    for simulator in SIMULATORS:
        assert f"\n## {simulator.name}\n" in text
    assert "### autoscaling: `name: hpa`" in text
    assert "| `horizonSeconds` | number from 0 to 3600 | `60.0` |" in text
    assert "### recovery: FaultRates" in text
    assert "stabilizationWindowSeconds" not in text


def test_simulators_have_unique_names_defaults_and_only_perturbations_that_can_be_simulated() -> None:
    assert len({one.name for one in SIMULATORS}) == len(SIMULATORS)
    for simulator in SIMULATORS:
        simulator.params()
        kinds = [perturbation_type(kind) for kind in simulator.perturbations]
        assert all(Backend.SIMULATION in kind.backends and math.isfinite(kind.most) for kind in kinds)
