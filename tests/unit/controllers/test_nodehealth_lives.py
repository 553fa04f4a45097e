"""A test with random events on a fleet: budgets hold, no taint stays behind, and healthy nodes return to
service.

`test_nodehealth_fleet` shows that broken rules are detected.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.cases import cases
from tests.unit.controllers.nodelives import FleetLife

SETTINGS = settings(
    max_examples=cases(12),
    stateful_step_count=30,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.timeout(cases(600))
def test_random_fleet_lives_keep_the_invariants() -> None:
    run_state_machine_as_test(FleetLife, settings=SETTINGS)
    assert FleetLife.drains > 0, "no life came to a drain: nothing was tried"
