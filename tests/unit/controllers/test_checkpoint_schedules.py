"""The checkpoint protocol under random schedules, and under schedules with one broken rule.

`make bench-schedules` plays 100,000 schedules.
"""

from __future__ import annotations

import contextlib

import pytest
from tests.cases import cases

from convoy_controllers.simulate.checkpoints.schedule import play
from convoy_controllers.simulate.checkpoints.shard_stores import Rules
from convoy_controllers.simulate.checkpoints.truth import NoProgress
from convoy_controllers.simulate.violation import InvariantViolation

SEEDS = cases(60)
BROKEN_SEEDS = 2000
"""Schedules in which a broken rule must show. The rarest one needs some hundred."""
pytestmark = pytest.mark.timeout(cases(400))


def test_what_was_promised_is_restored_whatever_happens() -> None:
    restores = committed = 0
    for seed in range(SEEDS):
        truth = play(seed)
        restores += truth.restores
        committed += truth.committed
    assert restores > 3 * SEEDS and committed > 5 * SEEDS, "otherwise nothing has been tried"


@pytest.mark.parametrize(
    ("rules", "near"),
    [
        pytest.param(Rules(absent=1), 0, id="a commit does without one slot"),
        pytest.param(Rules(peer_stands=False), 80, id="memory goes before its copies are there"),
        pytest.param(Rules(branches=False), 28, id="nobody says where it began"),
        pytest.param(
            Rules(refusals=False), 0, id="who has heard of a later incarnation serves the earlier one"
        ),
        pytest.param(Rules(acknowledged=False), 36, id="a copy counts when it is sent"),
        pytest.param(Rules(recorded=False), 414, id="copies count before the record has spread"),
        pytest.param(Rules(waits=False), 0, id="a restore does not wait for who may know better"),
    ],
)
def test_a_broken_rule_is_found(rules: Rules, near: int) -> None:
    """`near` is shortly before a seed that finds the broken rule. If schedules change, a later seed finds
    it.
    """
    with pytest.raises(InvariantViolation):
        for seed in range(near, near + BROKEN_SEEDS):
            # A schedule that gets stuck does not prove a wrong result.
            with contextlib.suppress(NoProgress):
                play(seed, rules)
