"""The protocol under random schedules, and what happens when one of its rules is broken."""

from __future__ import annotations

import contextlib

import pytest

from convoy_controllers.simulate.checkpoints.schedule import play
from convoy_controllers.simulate.checkpoints.truth import Broken, Stuck
from convoy_controllers.simulate.checkpoints.vaults import Rules

SEEDS = 200
# The rarest of the broken rules takes some hundred schedules.
pytestmark = pytest.mark.timeout(400)


def test_what_was_promised_is_restored_whatever_happens() -> None:
    restores = committed = 0
    for seed in range(SEEDS):
        truth = play(seed)
        restores += truth.restores
        committed += truth.committed
    assert restores > 3 * SEEDS and committed > 5 * SEEDS, "otherwise nothing has been tried"


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(Rules(absent=1), id="a commit does without one slot"),
        pytest.param(Rules(peer_stands=False), id="memory goes before its copies are there"),
        pytest.param(Rules(branches=False), id="nobody says where it began"),
        pytest.param(Rules(refusals=False), id="who has heard of a later incarnation serves the earlier one"),
        pytest.param(Rules(acknowledged=False), id="a copy counts when it is sent"),
        pytest.param(Rules(recorded=False), id="copies count before the record has spread"),
        pytest.param(Rules(waits=False), id="a restore does not wait for who may know better"),
    ],
)
def test_a_broken_rule_is_found(rules: Rules) -> None:
    with pytest.raises(Broken):
        for seed in range(10 * SEEDS):
            # That it gets stuck is not yet that it lies.
            with contextlib.suppress(Stuck):
                play(seed, rules)
