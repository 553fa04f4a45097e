"""Events of jobs: the newest, asked for once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.operator.dashboard.builders import ago

from convoy_operator import errors
from convoy_operator.dashboard.core.happenings import newest
from convoy_operator.dashboard.past import FRESH_SECONDS, MOST_JOBS, Past


def test_the_newest_are_kept_whatever_their_order() -> None:
    told: list[dict[str, Any]] = [
        {"reason": "b", "lastTimestamp": ago(minutes=2)},
        {"reason": "a", "eventTime": ago(minutes=1)},
        {"reason": "timeless"},
        {"reason": "c", "series": {"lastObservedTime": ago(minutes=3)}},
    ]
    assert [one["reason"] for one in newest(told, 2)] == ["a", "b"]


class Source:
    def __init__(self) -> None:
        self.asked = 0
        self.fault: Exception | None = None

    async def events(self, namespace: str, uid: str) -> list[dict[str, Any]]:
        self.asked += 1
        await asyncio.sleep(0)
        if self.fault is not None:
            raise self.fault
        return [{"reason": f"{namespace}/{uid}/{self.asked}"}]


def test_all_pages_of_a_job_share_one_question() -> None:
    async def play() -> None:
        source, now = Source(), [0.0]
        past = Past(source, lambda: now[0])
        told = await asyncio.gather(*(past.of("team", "u") for _ in range(30)))
        assert source.asked == 1 and len({one[0]["reason"] for one in told}) == 1
        now[0] += FRESH_SECONDS - 1
        await past.of("team", "u")
        assert source.asked == 1
        now[0] += 2
        assert (await past.of("team", "u"))[0]["reason"] == "team/u/2"
        closed = asyncio.create_task(past.of("team", "other"))
        waits = asyncio.create_task(past.of("team", "other"))
        await asyncio.sleep(0)
        closed.cancel()
        assert (await waits)[0]["reason"] == "team/other/3"

    asyncio.run(play())


def test_a_fault_is_told_and_jobs_are_bounded() -> None:
    async def play() -> None:
        source = Source()
        past = Past(source)
        source.fault = errors.Unavailable(0, "away")
        with pytest.raises(errors.Unavailable):
            await past.of("team", "u")
        source.fault = None
        for number in range(MOST_JOBS + 10):
            await past.of("team", f"u-{number}")
        assert len(past._known) == MOST_JOBS

    asyncio.run(play())
