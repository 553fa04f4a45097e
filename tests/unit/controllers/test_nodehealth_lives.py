"""A test with random events on a fleet: budgets hold, no taint stays behind, and healthy nodes return to
service.

`test_nodehealth_fleet` shows that broken rules are detected.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.cases import cases
from tests.unit.controllers.nodelives import FleetLife

SETTINGS = settings(
    max_examples=cases(6),
    stateful_step_count=30,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


MOST_ROUNDS = 8
"""Maximum number of rounds until a drain. About one round in eight has none."""


@pytest.mark.timeout(cases(600))
def test_random_fleet_lives_keep_the_invariants() -> None:
    for number in range(MOST_ROUNDS):
        # In CI, each round has its own seed, so that rounds differ but every run draws the same examples.
        chosen = seed(number)(FleetLife) if os.environ.get("CI") else FleetLife
        run_state_machine_as_test(chosen, settings=SETTINGS)
        if FleetLife.drains:
            return
    pytest.fail("no life came to a drain: nothing was tried")
