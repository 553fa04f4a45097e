"""Tests of the API client's rate limits and retry budget."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from convoy_operator.limits import FLOW, FairQueue, RetryBudget, TokenBucket, Usage, backoff


async def _acquire(line: FairQueue, flow: str, into: list[str]) -> None:
    FLOW.set(flow)
    await line.acquire()
    into.append(flow)


def test_a_burst_is_immediate_and_the_rest_follows_the_rate(virtual: Any) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        line = FairQueue(TokenBucket(10, 5, loop.time))
        began = loop.time()
        waits = await asyncio.gather(*(line.acquire() for _ in range(25)))
        assert loop.time() - began == pytest.approx(2.0, abs=0.01)
        assert waits[:5] == [0] * 5
        assert waits[5:] == pytest.approx([(index + 1) / 10 for index in range(20)], abs=0.01)

    virtual(scenario())


def test_a_request_does_not_wait_for_all_of_a_huge_job(virtual: Any) -> None:
    async def scenario() -> None:
        done: list[str] = []
        line = FairQueue(TokenBucket(10, 1, asyncio.get_running_loop().time))
        huge = [asyncio.create_task(_acquire(line, "huge", done)) for _ in range(50)]
        await asyncio.sleep(0)
        small = [asyncio.create_task(_acquire(line, "small", done)) for _ in range(2)]
        await asyncio.gather(*small)
        assert done.count("huge") <= 4
        await asyncio.gather(*huge)
        assert len(done) == 52

    virtual(scenario())


def test_rate_zero_never_waits() -> None:
    bucket = TokenBucket(0, 1)
    assert [bucket.reserve() for _ in range(100)] == [0.0] * 100


def test_a_cancelled_waiter_uses_no_token(virtual: Any) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        line = FairQueue(TokenBucket(1, 1, loop.time))
        await line.acquire()
        waiters = [asyncio.create_task(line.acquire()) for _ in range(3)]
        await asyncio.sleep(0)
        waiters[0].cancel()
        waiters[1].cancel()
        assert await waiters[2] == pytest.approx(1.0, abs=0.01)

    virtual(scenario())


def test_a_token_granted_during_a_cancellation_passes_to_the_next_waiter(virtual: Any) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        line = FairQueue(TokenBucket(1, 1, loop.time))
        await line.acquire()
        first, second = (asyncio.create_task(line.acquire()) for _ in range(2))
        await asyncio.sleep(0)
        # This timer comes after the queue's own timer, so the token is granted before the cancellation.
        loop.call_later(1.0, first.cancel)
        assert await second == pytest.approx(1.0, abs=0.01)
        with pytest.raises(asyncio.CancelledError):
            await first

    virtual(scenario())


def test_retries_are_a_share_of_requests() -> None:
    budget = RetryBudget(share=0.125, floor=2)
    assert [budget.spend() for _ in range(3)] == [True, True, False]
    for _ in range(8):
        budget.request()
    assert [budget.spend(), budget.spend()] == [True, False]


@pytest.mark.parametrize(("attempt", "ceiling"), [(0, 0.5), (1, 1.0), (6, 32.0), (7, 60.0), (10_000, 60.0)])
def test_back_off_stays_within_its_bounds(attempt: int, ceiling: float) -> None:
    waits = [backoff(attempt, 0.5, 60.0, random.Random(seed)) for seed in range(50)]
    assert all(ceiling / 2 <= wait <= ceiling for wait in waits)
    assert len(set(waits)) > 10


def test_usage_equals_the_rate_and_halves_over_time() -> None:
    now = 0.0
    usage = Usage(10.0, lambda: now)
    assert usage.rate == 0.0
    for second in range(200):
        now = float(second)
        usage.add(0.25)
    assert usage.rate == pytest.approx(0.25, rel=0.05)
    before, now = usage.rate, now + 10
    assert usage.rate == pytest.approx(before / 2)
