"""Tests of saves that a program wants at once, whatever the interval between two saves."""

from __future__ import annotations

import signal
from typing import Any

import pytest
import torch
from tests.unit.workloads.test_dcp import Agent, agent, joined
from tests.unit.workloads.test_in_store import StoreAgent

import convoy
from convoy_workloads.runtime.rank_context import RankContext
from convoy_workloads.runtime.tiers.checkpoints import MemoryCheckpoints

__all__ = ["agent"]


def run(job: Any, steps: int, now: bool = True) -> list[bool]:
    """Run the job. Return what `checkpoint` returns after each step."""
    layer = torch.nn.Linear(2, 1)
    job.restore(model=layer)
    return [job.checkpoint(step, now=now) for step in job.steps(steps)]


@pytest.mark.parametrize("now", [True, False])
def test_each_state_is_saved_although_the_next_save_is_not_due(now: bool, agent: Agent) -> None:
    agent.interval = 3600.0
    job = joined(agent)
    assert run(job, 3, now) == [now] * 3
    assert [step for step, _ in agent.saved] == ([1, 2, 3] if now else [3])


def test_the_final_state_of_a_job_with_a_store_is_saved_once_as_the_final_one() -> None:
    stand_in: Any = StoreAgent(interval=3600.0)
    context = RankContext(incarnation=2, socket="/nowhere", tiers=frozenset({"local", "remote"}))
    job: Any = convoy.join()
    job._checkpoints = MemoryCheckpoints(context, client=stand_in, status=stand_in)
    assert run(job, 3) == [True, True, False] and job.in_store
    seals = [(one["step"], one["last"]) for one in stand_in.questions if one["type"] == "seal"]
    assert seals == [(1, False), (2, False), (3, True)]


def test_a_state_that_is_not_committed_is_reported(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "wait_reached", lambda *_: False)
    assert run(joined(agent), 2) == [False, False]
    assert run(convoy.join(), 2) == [False, False]


def test_a_job_that_is_told_to_stop_saves_its_last_state_once(agent: Agent) -> None:
    with pytest.raises(convoy.Interrupted), joined(agent) as job:
        job.restore(model=torch.nn.Linear(2, 1))
        for step in job.steps(9):
            assert job.checkpoint(step, now=True) is (step == 1)
            signal.raise_signal(signal.SIGTERM)
    assert [step for step, _ in agent.saved] == [1, 2]
