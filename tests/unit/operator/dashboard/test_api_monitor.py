"""Tests of the API monitor: the failing watches that pages report."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from convoy_controllers.resources import NODE_HEALTHS
from convoy_operator import errors
from convoy_operator.dashboard.api_monitor import FAILURE_GRACE_SECONDS, ApiMonitor, MonitoredGateway

FORBIDDEN = errors.Forbidden(403, "no right")
BROKEN = errors.Unavailable(500, "broken")
OLD = errors.Gone(410, "too old")
LONG = FAILURE_GRACE_SECONDS + 1


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Available:
    """A gateway whose API server is available."""

    async def probe(self) -> None:
        return None


@pytest.mark.parametrize(
    ("steps", "unwatched", "recovering"),
    [
        ([("list", FORBIDDEN)], True, False),
        ([("list", FORBIDDEN), ("list", None)], False, False),
        # A resource that may be listed but not watched is reported even after the list succeeds.
        ([("list", None), ("watch", FORBIDDEN), ("list", None)], True, False),
        ([("watch", FORBIDDEN), ("watch", None)], False, False),
        ([("watch", BROKEN)], False, False),
        ([("watch", BROKEN), LONG], True, False),
        ([("watch", BROKEN), LONG, ("watch", None)], False, False),
        ([("watch", BROKEN), LONG / 2, ("watch", BROKEN), LONG / 2], True, False),
        ([("watch", BROKEN), LONG / 2, ("watch", None), ("watch", BROKEN), LONG / 2], False, False),
        ([("watch", OLD), LONG], False, False),
        # During an outage, pages report the outage instead of each broken watch.
        ([("watch", BROKEN), "away", LONG], False, False),
        # After an outage, a reflector waits before it retries. Until then the watch counts as recovering.
        (["away", ("watch", BROKEN), LONG, "back"], False, True),
        (["away", ("watch", BROKEN), LONG, "back", ("watch", None)], False, False),
        (["away", ("watch", BROKEN), LONG, "back", LONG], True, False),
    ],
)
def test_failing_watches_are_reported(steps: list[Any], unwatched: bool, recovering: bool) -> None:
    clock, changes = Clock(), []
    monitor = ApiMonitor(Available(), lambda: changes.append(1), clock)  # type: ignore[arg-type]
    for step in steps:
        match step:
            case "away":
                monitor.unavailable_since = datetime.now(UTC)
            case (how, None):
                monitor.record_success(NODE_HEALTHS, how)
            case (how, fault):
                monitor.record_failure(NODE_HEALTHS, how, fault)
            case "back":
                asyncio.run(monitor.probe())
            case seconds:
                clock.now += seconds
                monitor.update()
    assert list(monitor.unwatched) == (["nodehealths"] if unwatched else [])
    assert monitor.recovering == (["nodehealths"] if recovering else [])
    assert len(changes) >= unwatched + recovering


class Quiet:
    """A watch without events. It opens when the test sets `opened`."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def watch(self, *given: Any) -> AsyncIterator[Any]:
        await self.opened.wait()
        given[-1]()
        await asyncio.sleep(60)
        yield "MODIFIED", {}


def test_a_watch_works_only_after_it_is_opened(
    virtual: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def play() -> None:
        monitor, quiet = ApiMonitor(None, lambda: None), Quiet()  # type: ignore[arg-type]
        monitor.record_failure(NODE_HEALTHS, "watch", FORBIDDEN)
        events = MonitoredGateway(quiet, monitor).watch(NODE_HEALTHS, "1")  # type: ignore[arg-type]
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(FAILURE_GRACE_SECONDS)
        assert monitor.unwatched, "one that hangs does not work"
        quiet.opened.set()
        await asyncio.sleep(0.1)
        assert not monitor.unwatched
        waiting.cancel()

    virtual(play())
