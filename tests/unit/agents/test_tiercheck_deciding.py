"""Tests of restore decisions. Slot 0's agent must decide once for each attempt, and a decision must
continue if its caller is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from convoy_agents.tiercheck.deciding import Decisions, RestoreFailed
from convoy_agents.wire import hub_pb2


class Plan:
    slot, incarnation, job = 0, 2, "job"


class Slot0(Decisions):
    """Fake Decisions of slot 0's agent. `outcomes`: for each decision in order, a function that returns or
    raises.
    """

    def __init__(self, *outcomes: Callable[[], None]) -> None:
        super().__init__("n", *[self] * 3)  # type: ignore[arg-type] - nobody else is asked
        self.outcomes = list(outcomes)
        self.may = asyncio.Event()

    def plan(self, job_uid: str) -> Any:
        return Plan()

    async def _decide(self, *_: Any) -> hub_pb2.ResumeReply:
        outcome = self.outcomes.pop(0)
        await self.may.wait()
        outcome()
        return hub_pb2.ResumeReply(outcome=hub_pb2.ResumeReply.FRESH)

    async def decide_once(self) -> Any:
        return await self.decide("uid", 2, 0, ())


def succeed() -> None:
    """Let the decision succeed."""


def raises(error: BaseException) -> Callable[[], None]:
    def do() -> None:
        raise error

    return do


@pytest.mark.parametrize(
    "error",
    [RestoreFailed("no answer"), OSError("no room"), ValueError("no record"), asyncio.CancelledError()],
)
async def test_a_request_after_a_failure_retries_the_decision(error: BaseException) -> None:
    slot = Slot0(raises(error), succeed)
    requests = [asyncio.create_task(slot.decide_once()) for _ in range(3)]
    await asyncio.sleep(0)
    slot.may.set()
    results = await asyncio.gather(*requests, return_exceptions=True)
    if isinstance(error, RestoreFailed):
        assert [one.message for one in results] == ["no answer"] * 3  # type: ignore[union-attr]
    else:
        assert [type(one) for one in results] == [type(error)] * 3
    (again,) = await asyncio.gather(slot.decide_once(), return_exceptions=True)
    assert again == hub_pb2.ResumeReply(outcome=hub_pb2.ResumeReply.FRESH)


async def test_a_decision_stays_although_a_requester_is_cancelled() -> None:
    slot = Slot0(succeed)
    cancelled, stays = asyncio.create_task(slot.decide_once()), asyncio.create_task(slot.decide_once())
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    slot.may.set()
    assert (await stays).outcome == (await slot.decide_once()).outcome == hub_pb2.ResumeReply.FRESH
