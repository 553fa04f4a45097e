"""Tests of the checkpoint protocol under random schedules, with all rules and with one broken rule.

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

SEEDS = cases(15)
BROKEN_SEEDS = 2000
"""Maximum number of schedules until a broken rule must be found. The rule that is hardest to find needs
some hundred.
"""
pytestmark = pytest.mark.timeout(cases(400))


def test_committed_state_is_restored_under_random_schedules() -> None:
    restores = committed = 0
    for seed in range(SEEDS):
        truth = play(seed)
        restores += truth.restores
        committed += truth.committed
    assert restores > 3 * SEEDS and committed > 5 * SEEDS, "too few restores or commits for a test"


@pytest.mark.parametrize(
    ("rules", "near"),
    [
        pytest.param(Rules(absent=1), 0, id="a commit lacks the vote of one slot"),
        pytest.param(Rules(peer_stands=False), 80, id="memory is dropped before its copies are complete"),
        pytest.param(Rules(branches=False), 28, id="no incarnation writes a branch"),
        pytest.param(
            Rules(refusals=False), 0, id="a node that has seen a later incarnation serves the earlier one"
        ),
        pytest.param(Rules(acknowledged=False), 36, id="a copy counts before it is acknowledged"),
        pytest.param(Rules(recorded=False), 414, id="copies count before other nodes have the record"),
        pytest.param(
            Rules(waits=False), 0, id="a restore does not wait for nodes that may have a newer state"
        ),
    ],
)
def test_schedules_detect_a_broken_rule(rules: Rules, near: int) -> None:
    """Play schedules with one broken rule, from the seed `near` on. One of them must violate an invariant.

    `near` is shortly before the first seed that finds the violation, so that the test is fast. If the
    schedules change, a later seed finds it.
    """
    with pytest.raises(InvariantViolation):
        for seed in range(near, near + BROKEN_SEEDS):
            # NoProgress does not prove a wrong result, so play the next seed.
            with contextlib.suppress(NoProgress):
                play(seed, rules)
