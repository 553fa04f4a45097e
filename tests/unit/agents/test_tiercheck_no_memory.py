"""A job for which the node has no memory at all: whoever asks for it hears so, and all else goes on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.agents.test_tiercheck_vault import named, noise

from convoy_agents.daemon import Agent
from convoy_agents.tiercheck.holding import Holding, Refused
from convoy_agents.tiercheck.keeper import Keeper
from convoy_agents.tiercheck.scrubbing import Scrubber
from convoy_agents.tiercheck.service import ShardService
from convoy_agents.wire import hub_pb2

NOBODY: Any = None


@pytest.fixture
def keeper(tmp_path: Path) -> Keeper:
    """Other jobs hold all that the node has."""
    found = Keeper(tmp_path, 0, lambda: None)
    found.open("job-1")
    return found


def refused(keeper: Keeper) -> Holding:
    holding = keeper.get("job-1")
    assert holding is not None
    return holding


async def test_the_scrubber_passes_over_it(keeper: Keeper) -> None:
    with pytest.raises(Refused, match="the node may have 0"):
        await refused(keeper).look(lambda vault: vault)
    await Scrubber("one", keeper, NOBODY, lambda: [], 1.0).once()


async def test_whoever_offers_a_copy_hears_to_come_later_and_why(keeper: Keeper) -> None:
    async def shown(*_: Any) -> Any:
        return SimpleNamespace(incarnation=1, node="two")

    plan = SimpleNamespace(incarnation=1, memory_limit=0)
    surveys: Any = SimpleNamespace(plan=lambda uid: plan)
    warrants: Any = SimpleNamespace(shown=shown)
    service = ShardService(keeper, surveys, NOBODY, NOBODY, warrants)
    request = hub_pb2.OfferRequest(job_uid="job-1", incarnation=1, manifest=named(noise(1), 1).text)
    reply = await service.Offer(request, NOBODY)
    assert reply.answer == hub_pb2.OfferReply.LATER and "the node may have 0" in reply.reason


async def test_an_agent_that_begins_serves_the_other_pods(keeper: Keeper) -> None:
    """A rank may have asked before the agent goes on with what the one before was doing."""
    gone_on = []

    async def resume(uid: str) -> None:
        if uid == "a":
            await refused(keeper).look(lambda vault: vault)
        gone_on.append(uid)

    pods = [SimpleNamespace(uid=uid) for uid in "ab"]
    agent: Any = SimpleNamespace(pods=pods, _committer=SimpleNamespace(resume=resume))
    await Agent._resume(agent)
    assert gone_on == ["b"]
