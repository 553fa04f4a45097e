"""Tests of the layout that follows from pods, nodes and the positions that ranks report."""

from __future__ import annotations

import pytest

from convoy_controllers.guard.rank_placement import RankPlacement, place_ranks
from convoy_controllers.guard.telemetry import Position
from convoy_controllers.testing.builders import make_job
from convoy_crds.layout import slots

NODES = {"job-actor-0": "n0", "job-actor-1": "n1", "job-learner-0": "n1"}
LABELS = {"n0": {"topology.kubernetes.io/rack": "r"}, "n1": {"nvidia.com/gpu.product": "H"}}


@pytest.fixture
def placement() -> RankPlacement:
    """Two actors with two ranks each, and a learner with two ranks."""
    roles = [
        {"name": "actor", "replicas": 2, "processesPerReplica": 2},
        {"name": "learner", "replicas": 1, "processesPerReplica": 2},
    ]
    return place_ranks(slots(make_job(roles=roles)), NODES, LABELS)


def test_each_role_is_a_stage_and_each_rank_a_replica(placement: RankPlacement) -> None:
    layout = placement.layout
    assert layout.stage.tolist() == [0, 0, 0, 0, 1, 1]
    assert layout.replica.tolist() == [0, 1, 2, 3, 4, 5]
    assert placement.by_node(range(6)) == {"n0": (0, 1), "n1": (2, 3, 4, 5)}
    assert layout.hardware.tolist() == [0, 0, 1, 1, 1, 1] and layout.rack.tolist() == [0, 0, 1, 1, 1, 1]


def test_reported_stages_divide_a_role_but_join_no_roles(placement: RankPlacement) -> None:
    positions = {rank: Position(stage=rank % 2, replica=100 - rank // 2) for rank in range(6)}
    found = placement.with_positions(positions)
    assert found.layout.stage.tolist() == [0, 1, 0, 1, 2, 3]
    assert found.layout.replica.tolist() == [2, 2, 1, 1, 0, 0]
    assert found.layout.node is placement.layout.node and found.ranks == placement.ranks


def test_layout_stays_while_a_position_is_missing(placement: RankPlacement) -> None:
    assert placement.with_positions({rank: Position(0, rank) for rank in range(5)}) is placement


def test_without_peers_each_rank_is_alone(placement: RankPlacement) -> None:
    assert sorted(placement.without_peers().layout.peers.tolist()) == list(range(6))
