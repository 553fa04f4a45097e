"""Random lives of jobs: whatever happens to pods, nodes, agents, users and the operator, the plan keeps its
invariants.

Each shape of job gets an equal share of the random events; `make fuzz` plays 200,000 events.
`convoy_controllers.simulate.invariants` lists the invariants. `lives` checks that the job reaches its goal
after all faults are healed.
"""

from __future__ import annotations

import os
from itertools import count

import pytest
from hypothesis import Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.cases import cases
from tests.unit.controllers.lives import SHAPES, machine

EVENTS = cases(2_000)
SETTINGS = settings(
    max_examples=2,
    stateful_step_count=200,
    # The shrink phase is left out, because it takes minutes for a life of 200 events. CI has no time for it;
    # developers add it for debugging.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


@pytest.mark.timeout(cases(300))
@pytest.mark.parametrize("shape", SHAPES)
def test_random_job_lives_keep_the_invariants(shape: str) -> None:
    life = machine(SHAPES[shape])
    rounds = count()
    while life.steps["all"] < EVENTS / len(SHAPES):
        # In CI, each round has its own seed, so that rounds differ but every run draws the same examples.
        chosen = seed(next(rounds))(life) if os.environ.get("CI") else life
        run_state_machine_as_test(chosen, settings=SETTINGS)
