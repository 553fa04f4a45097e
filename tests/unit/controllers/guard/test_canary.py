"""Tests of the tables that a canary stores."""

from __future__ import annotations

import pytest

from convoy_controllers.guard.canary import SETTLE, Canary
from convoy_controllers.guard.detector import advance
from convoy_controllers.guard.state import initial_state
from convoy_controllers.guard.synthetic import Job, play


@pytest.mark.parametrize(("replicas", "kept"), [(1, 0), (3, 0), (4, 8), (16, 8)])
def test_canary_keeps_tables_only_if_a_rank_has_peers(replicas: int, kept: int) -> None:
    job = Job(stages=1, replicas=replicas, per_node=1, micro=1, groups=False)
    canary, state = Canary(), initial_state(job.layout())
    for table in play(job, [], SETTLE + 8, 1):
        canary.add(state, table, 0.0)
        state, _ = advance(state, table)
    assert len(canary.tables) == kept
