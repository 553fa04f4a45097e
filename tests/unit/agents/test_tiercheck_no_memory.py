"""Tests of a job for which the node has no free memory. Its memory requests must be refused, and the node's
other jobs must continue.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.agents.test_tiercheck_shard_store import named, noise

from convoy_agents.daemon import Agent
from convoy_agents.tiercheck.job_memory import JobMemory
from convoy_agents.tiercheck.job_share import BudgetExceeded
from convoy_agents.tiercheck.memory_manager import MemoryManager
from convoy_agents.tiercheck.scrubbing import Scrubber
from convoy_agents.tiercheck.service import ShardService
from convoy_agents.wire import hub_pb2

NOBODY: Any = None


@pytest.fixture
def memory_manager(tmp_path: Path) -> MemoryManager:
    """Return a MemoryManager that has no free memory, and one job."""
    found = MemoryManager(tmp_path, 0, lambda: None)
    found.open("job-1")
    return found


def refused(memory_manager: MemoryManager) -> JobMemory:
    job_memory = memory_manager.get("job-1")
    assert job_memory is not None
    return job_memory


async def test_the_scrubber_skips_a_job_without_memory(memory_manager: MemoryManager) -> None:
    with pytest.raises(BudgetExceeded, match="the node's limit is 0 bytes"):
        await refused(memory_manager).inspect(lambda store: store)
    await Scrubber("one", memory_manager, NOBODY, lambda: [], 1.0).scrub()


async def test_an_offer_of_a_copy_gets_later_with_the_reason(memory_manager: MemoryManager) -> None:
    async def shown(*_: Any) -> Any:
        return SimpleNamespace(incarnation=1, node="two")

    plan = SimpleNamespace(incarnation=1, memory_limit=0)
    surveys: Any = SimpleNamespace(plan=lambda uid: plan)
    slot_tokens: Any = SimpleNamespace(require=shown)
    service = ShardService(memory_manager, surveys, NOBODY, NOBODY, slot_tokens, NOBODY)
    request = hub_pb2.OfferRequest(job_uid="job-1", incarnation=1, manifest=named(noise(1), 1).text)
    reply = await service.Offer(request, NOBODY)
    assert reply.decision == hub_pb2.OfferReply.LATER and "the node's limit is 0 bytes" in reply.reason


async def test_pods_of_other_jobs_are_resumed(
    memory_manager: MemoryManager,
) -> None:
    """Resuming pod `a` fails because its job has no memory. The agent must still resume pod `b`."""
    gone_on = []

    async def resume(uid: str) -> None:
        if uid == "a":
            await refused(memory_manager).inspect(lambda store: store)
        gone_on.append(uid)

    pods = [SimpleNamespace(uid=uid) for uid in "ab"]
    states = SimpleNamespace(copies=SimpleNamespace(start=lambda uid: None))
    agent: Any = SimpleNamespace(pods=pods, _committer=SimpleNamespace(resume=resume), _states=states)
    await Agent._resume(agent)
    assert gone_on == ["b"]
