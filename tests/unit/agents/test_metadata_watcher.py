"""Tests of the polls of a metadata service, with a source whose replies the test gives."""

from __future__ import annotations

import asyncio

import pytest

from convoy_agents.spot import watcher
from convoy_agents.spot.notices import Notices
from convoy_agents.spot.source import Finding, SourceError
from convoy_agents.spot.watcher import MetadataWatcher
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


async def kinds_after(*replies: SourceError | tuple[Finding, ...]) -> list[str]:
    """Return the kinds of the notices after these replies."""
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
    return [one.kind for one in message.notices]


async def test_the_valid_part_of_a_reply_counts() -> None:
    assert await kinds_after(SourceError("status 503", (Finding(),))) == ["Preemption"]


async def test_a_failed_poll_withdraws_no_notice() -> None:
    rebalance = Finding(NoticeKind.REBALANCE)
    assert await kinds_after((rebalance,), SourceError("status 503")) == ["Rebalance"]
    part = SourceError("status 503", (Finding(),))
    assert await kinds_after((rebalance,), part) == ["Rebalance", "Preemption"]
    assert await kinds_after((rebalance,), part, ()) == []
