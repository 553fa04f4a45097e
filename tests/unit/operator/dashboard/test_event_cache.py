"""Tests of the cache of Events."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.operator.dashboard.builders import ago

from convoy_operator import errors
from convoy_operator.dashboard.core.timeline import newest
from convoy_operator.dashboard.event_cache import FRESH_SECONDS, MAX_JOBS, EventCache


def test_the_newest_events_are_kept_in_any_order() -> None:
    events: list[dict[str, Any]] = [
        {"reason": "b", "lastTimestamp": ago(minutes=2)},
        {"reason": "a", "eventTime": ago(minutes=1)},
        {"reason": "timeless"},
        {"reason": "c", "series": {"lastObservedTime": ago(minutes=3)}},
    ]
    assert [one["reason"] for one in newest(events, 2)] == ["a", "b"]


class FakeSource:
    def __init__(self) -> None:
        self.requests = 0
        self.fault: Exception | None = None

    async def events(self, namespace: str, uid: str) -> list[dict[str, Any]]:
        self.requests += 1
        await asyncio.sleep(0)
        if self.fault is not None:
            raise self.fault
        return [{"reason": f"{namespace}/{uid}/{self.requests}"}]


def test_all_pages_of_a_job_share_one_request() -> None:
    async def play() -> None:
        source, now = FakeSource(), [0.0]
        cache = EventCache(source, lambda: now[0])
        events = await asyncio.gather(*(cache.events("team", "u") for _ in range(30)))
        assert source.requests == 1 and len({one[0]["reason"] for one in events}) == 1
        now[0] += FRESH_SECONDS - 1
        await cache.events("team", "u")
        assert source.requests == 1
        now[0] += 2
        assert (await cache.events("team", "u"))[0]["reason"] == "team/u/2"
        closed = asyncio.create_task(cache.events("team", "other"))
        waits = asyncio.create_task(cache.events("team", "other"))
        await asyncio.sleep(0)
        closed.cancel()
        assert (await waits)[0]["reason"] == "team/other/3"

    asyncio.run(play())


def test_errors_are_raised_and_the_number_of_jobs_is_bounded() -> None:
    async def play() -> None:
        source = FakeSource()
        cache = EventCache(source)
        source.fault = errors.Unavailable(0, "away")
        with pytest.raises(errors.Unavailable):
            await cache.events("team", "u")
        source.fault = None
        for number in range(MAX_JOBS + 10):
            await cache.events("team", f"u-{number}")
        assert len(cache._known) == MAX_JOBS

    asyncio.run(play())
