"""Random lives: whatever happens to pods, nodes, agents, users and the operator, the plan keeps its promises.

At least 50,000 random events in all; each shape has its share. What is promised stands in
`convoy_controllers.simulate.promises`, and in `lives` what must hold when nothing more goes wrong.
"""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.unit.controllers.lives import SHAPES, machine

EVENTS = 50_000
SETTINGS = settings(
    max_examples=10,
    stateful_step_count=200,
    # Making a life of 200 events shorter takes minutes: who mends it has them, CI has not.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("shape", SHAPES)
def test_whatever_happens_the_promises_are_kept(shape: str) -> None:
    life = machine(SHAPES[shape])
    while life.steps["all"] < EVENTS / len(SHAPES):
        run_state_machine_as_test(life, settings=SETTINGS)
