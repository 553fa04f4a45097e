"""Budgets of the API client."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from convoy_operator.limits import RetryBudget, TokenBucket, backoff


def test_a_burst_goes_at_once_and_the_rest_at_the_rate(virtual: Any) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        bucket = TokenBucket(10, 5, loop.time)
        began = loop.time()
        await asyncio.gather(*(bucket.take() for _ in range(25)))
        assert loop.time() - began == pytest.approx(2.0, abs=0.01)

    virtual(scenario())


def test_rate_zero_never_waits() -> None:
    bucket = TokenBucket(0, 1)
    assert [bucket.reserve() for _ in range(100)] == [0.0] * 100


def test_a_cancelled_waiter_gives_its_token_back(virtual: Any) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        bucket = TokenBucket(1, 1, loop.time)
        await bucket.take()
        waiter = asyncio.create_task(bucket.take())
        await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)
        assert bucket.reserve() == pytest.approx(1.0)

    virtual(scenario())


def test_retries_are_a_share_of_requests() -> None:
    budget = RetryBudget(share=0.125, floor=2)
    assert [budget.spend() for _ in range(3)] == [True, True, False]
    for _ in range(8):
        budget.request()
    assert [budget.spend(), budget.spend()] == [True, False]


@pytest.mark.parametrize(("attempt", "ceiling"), [(0, 0.5), (1, 1.0), (6, 32.0), (7, 60.0), (10_000, 60.0)])
def test_back_off_keeps_within_its_bounds(attempt: int, ceiling: float) -> None:
    waits = [backoff(attempt, 0.5, 60.0, random.Random(seed)) for seed in range(50)]
    assert all(ceiling / 2 <= wait <= ceiling for wait in waits)
    assert len(set(waits)) > 10
