"""Tests of the polls of a metadata service, with a source whose replies the test gives."""

from __future__ import annotations

import asyncio

import pytest

from convoy_agents.spot import watcher
from convoy_agents.spot.notices import MAX_PROBLEM, Notices
from convoy_agents.spot.source import Finding, SourceError
from convoy_agents.spot.sources import source_named
from convoy_agents.spot.watcher import MetadataWatcher
from convoy_agents.wire import hub_pb2
from convoy_crds.spotpool_status import NoticeKind, NoticeSource


class Replies:
    """A service that gives each reply once, and then hangs."""

    def __init__(self, *replies: SourceError | tuple[Finding, ...]) -> None:
        self._left = list(replies)
        self.used_up = asyncio.Event()

    async def poll(self) -> tuple[Finding, ...]:
        if not self._left:
            self.used_up.set()
            await asyncio.Event().wait()
        reply = self._left.pop(0)
        if isinstance(reply, SourceError):
            raise reply
        return reply


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "RETRY_SECONDS", 0.001)
    monkeypatch.setattr(watcher, "MAX_RETRY_SECONDS", 0.001)


async def message_after(*replies: SourceError | tuple[Finding, ...]) -> hub_pb2.Notices:
    """Return the agent's message to the hub after these replies."""
    source = Replies(*replies)
    notices = Notices("boot", lambda: None)
    polls = MetadataWatcher(notices, lambda name: (NoticeSource.AWS, source), period=0.0)
    polls.choose("AWS")
    running = asyncio.create_task(polls.run())
    async with asyncio.timeout(30):
        await source.used_up.wait()
    running.cancel()
    message = notices.pop_message(again=True)
    assert message is not None
    return message


async def kinds_after(*replies: SourceError | tuple[Finding, ...]) -> list[str]:
    """Return the kinds of the notices after these replies."""
    return [one.kind for one in (await message_after(*replies)).notices]


async def test_the_valid_part_of_a_reply_counts() -> None:
    assert await kinds_after(SourceError("status 503", (Finding(),))) == ["Preemption"]


async def test_a_failed_poll_withdraws_no_notice() -> None:
    rebalance = Finding(NoticeKind.REBALANCE)
    assert await kinds_after((rebalance,), SourceError("status 503")) == ["Rebalance"]
    part = SourceError("status 503", (Finding(),))
    assert await kinds_after((rebalance,), part) == ["Rebalance", "Preemption"]
    assert await kinds_after((rebalance,), part, ()) == []


@pytest.mark.parametrize(
    ("replies", "problem"),
    [
        (((),), ""),
        (((Finding(),),), ""),
        ((SourceError("status 503"),), "status 503"),
        ((SourceError("status 503"), SourceError("no reply")), "status 503"),
        (((), SourceError("no reply")), "no reply"),
        ((SourceError("status 503"), ()), ""),
        ((SourceError("x" * 5000),), "x" * MAX_PROBLEM),
    ],
)
async def test_the_hub_learns_whether_the_service_can_be_read(
    replies: tuple[SourceError | tuple[Finding, ...], ...], problem: str
) -> None:
    found = (await message_after(*replies)).poll
    assert (found.metadata, found.problem) == ("AWS", problem)


async def test_a_service_that_is_not_allowed_is_a_problem_until_the_pool_names_none() -> None:
    woken = asyncio.Event()
    notices = Notices("boot", woken.set)
    polls = MetadataWatcher(notices, lambda name: source_named(name, "", "n"))

    async def message() -> hub_pb2.Notices:
        async with asyncio.timeout(30):
            await woken.wait()
        woken.clear()
        found = notices.pop_message(again=False)
        assert found is not None
        return found

    polls.choose("Fake")
    running = asyncio.create_task(polls.run())
    found = (await message()).poll
    assert found.metadata == "Fake" and "agent.notices.fake" in found.problem
    polls.choose("None")
    assert not (await message()).HasField("poll")
    running.cancel()


def test_a_service_that_keeps_failing_causes_one_message() -> None:
    woken: list[int] = []
    notices = Notices("boot", lambda: woken.append(1))
    for problem in ("late", "late", "closed", "", "", "late"):
        notices.set_poll("AWS", problem)
    assert len(woken) == 3
