"""Tests of the reported cost of a save in memory, with a stand-in for the agent."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.unit.workloads.test_dcp import Agent, agent

from convoy_workloads.runtime.rank_context import RankContext
from convoy_workloads.runtime.tiers import checkpoints, in_flight_save, planned, planning, shard
from convoy_workloads.runtime.tiers.checkpoints import MemoryCheckpoints

__all__ = ["agent"]

COPY, ONCE = 0.25, 7.0
STATE = {"weights": torch.ones(1000)}


@pytest.fixture
def memory(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> MemoryCheckpoints:
    """Checkpoints with a manual clock. A copy takes `COPY` seconds, and planning and the reservation of
    memory take `ONCE`.
    """
    clock = [100.0]
    now = SimpleNamespace(monotonic=lambda: clock[0])
    for module in (checkpoints, in_flight_save, planned):
        monkeypatch.setattr(module, "time", now)

    def slow(work: Callable[..., Any], seconds: float) -> Callable[..., Any]:
        def do(*arguments: Any) -> Any:
            clock[0] += seconds
            return work(*arguments)

        return do

    stand_in: Any = agent
    context = RankContext(incarnation=1, socket="/nowhere", tiers=frozenset({"local"}))
    memory = MemoryCheckpoints(context, client=stand_in, status=stand_in)
    monkeypatch.setattr(planning, "plan_save", slow(planning.plan_save, ONCE))
    monkeypatch.setattr(memory.planned, "ensure_capacity", slow(memory.planned.ensure_capacity, ONCE))
    monkeypatch.setattr(shard, "write", slow(shard.write, COPY))
    memory.ready(torch.nn.Linear(100, 10), None)
    memory._worker.join(20)
    return memory


@pytest.mark.parametrize("wanted", [True, False])
def test_a_job_without_a_journal_saves_in_full(agent: Agent, wanted: bool) -> None:
    stand_in: Any = agent
    context = RankContext(incarnation=1, socket="/nowhere", tiers=frozenset({"local"}), journal=wanted)
    memory = MemoryCheckpoints(context, client=stand_in, status=stand_in)
    model = torch.nn.Linear(2, 2)
    memory.ready(model, torch.optim.Adam(model.parameters()))
    memory._worker.join(20)
    assert (memory._journal_saves._journal is not None) is wanted


def test_the_one_time_allocation_does_not_count_towards_a_save(memory: MemoryCheckpoints) -> None:
    assert memory.stall_seconds == 0
    for step in (1, 2):
        assert memory.start(STATE, step) and memory.settle()
        assert memory.stall_seconds == COPY


def test_the_one_time_allocation_does_not_count_towards_a_planned_save(memory: MemoryCheckpoints) -> None:
    for step in (1, 2):
        assert memory.planned.put((), (), {"n": "1"}, step) == ""
        assert memory.settle() and memory.stall_seconds == COPY
