"""Tests of a rank's position in the parallel layout: from the program, or from its process groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from convoy_workloads.runtime.telemetry.position import Position, from_groups, from_torch

WORLD, RANK = 8, 5


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([("mesh_pp", [1, 3, 5, 7]), ("mesh_dp", [4, 5])], Position(2, 1)),
        ([("default_pg", range(8)), ("pipe", [5, 7])], Position(0, 0)),
        (
            [("PIPELINE_MODEL_PARALLEL_GROUP", [1, 5]), ("DATA_PARALLEL_GROUP", [4, 5, 6, 7])],
            Position(1, 1),
        ),
        ([("mesh_pp", [1, 5]), ("mesh_dp_shard", [5, 7]), ("mesh_dp_replicate", [3, 5])], Position(1, 2)),
        ([("mesh_pp", [1, 5]), ("mesh_tp", [4, 5]), ("mesh_cp", [5, 7])], Position(1, 0)),
        ([("mesh_dp", [4, 5]), ("mesh_tp", [5, 7])], None),
        ([("mesh_pp", [5])], None),
        ([("undefined", [1, 5])], None),
        ([], None),
    ],
)
def test_groups_tell_the_position(groups: Sequence[tuple[str, Sequence[int]]], expected: Any) -> None:
    assert from_groups(groups, RANK) == expected


def test_position_must_be_whole_numbers() -> None:
    assert Position(3, 0).message() == {"stage": 3, "replica": 0}
    for stage, error in ((-1, ValueError), (2**31, ValueError), (1.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match=r"^stage: "):
            Position(stage, 0)  # type: ignore[arg-type]


@pytest.fixture
def fake_ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make this process rank RANK of WORLD, without the other ranks."""
    monkeypatch.setenv("RANK", str(RANK))
    monkeypatch.setenv("WORLD_SIZE", str(WORLD))
    dist.init_process_group("fake", rank=RANK, world_size=WORLD, store=FakeStore())
    yield
    dist.destroy_process_group()


def test_device_mesh_tells_the_position(fake_ranks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert from_torch() is None, "no group has a name"
    init_device_mesh("cpu", (4, 2), mesh_dim_names=("pp", "dp"))
    assert from_torch() == Position(2, 1)
    monkeypatch.setenv("RANK", "4")
    assert from_torch() is None, "the program numbers its ranks in another way"


def test_without_process_groups_there_is_no_position() -> None:
    assert from_torch() is None
