"""Random lives: whatever happens to pods, nodes, agents, users and the operator, the plan keeps its
promises.

Each shape gets its share of the random events; `make fuzz` plays 500,000.
`convoy_controllers.simulate.invariants` lists the promises, and `lives` what must hold once nothing more goes
wrong.
"""

from __future__ import annotations

import os
from itertools import count

import pytest
from hypothesis import Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.cases import cases
from tests.unit.controllers.lives import SHAPES, machine

EVENTS = cases(5_000)
SETTINGS = settings(
    max_examples=5,
    stateful_step_count=200,
    # To shrink a life of 200 events takes minutes. Developers who debug it have them, CI does not.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


@pytest.mark.timeout(cases(300))
@pytest.mark.parametrize("shape", SHAPES)
def test_whatever_happens_the_promises_are_kept(shape: str) -> None:
    life = machine(SHAPES[shape])
    rounds = count()
    while life.steps["all"] < EVENTS / len(SHAPES):
        # In CI each round draws its own examples, and the same ones in every run.
        chosen = seed(next(rounds))(life) if os.environ.get("CI") else life
        run_state_machine_as_test(chosen, settings=SETTINGS)
