"""Tests that a program learns at its end whether its final state is in the job's store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tests.unit.workloads.test_dcp import Agent, agent, joined

import convoy
from convoy_workloads.runtime.generation import Generation
from convoy_workloads.runtime.rank_context import RankContext
from convoy_workloads.runtime.tiers.checkpoints import MemoryCheckpoints

__all__ = ["agent"]


@dataclass
class StoreAgent(Agent):
    """An agent whose store accepts the final state, or does not."""

    accepts: bool = True
    chosen: bool = True
    """True if the agent uploads the final state; False if it cannot reach the store."""

    def uploads(self, generation: Generation) -> bool:
        return self.chosen

    def wait_reached(self, generation: Generation, tier: str, seconds: float) -> bool:
        return tier != "remote" or self.accepts


def run_to_end(job: Any, steps: int = 2) -> None:
    job.restore(model=torch.nn.Linear(2, 1))
    for step in job.steps(steps):
        job.report(step)


@pytest.mark.parametrize(
    ("accepts", "chosen", "in_store"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_the_final_state_is_in_the_store_only_if_the_store_accepted_it(
    accepts: bool, chosen: bool, in_store: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in: Any = StoreAgent(accepts=accepts, chosen=chosen)
    context = RankContext(incarnation=2, socket="/nowhere", tiers=frozenset({"local", "remote"}))
    job: Any = convoy.join()
    job._checkpoints = MemoryCheckpoints(context, client=stand_in, status=stand_in)
    assert job.in_store is False
    run_to_end(job)
    assert job.in_store is in_store
    assert ("IS NOT IN THE STORE" in capsys.readouterr().err) is not in_store


def test_a_job_without_a_store_has_no_answer(agent: Agent) -> None:
    job = joined(agent)
    run_to_end(job)
    assert job.in_store is None
    assert convoy.join().in_store is None
