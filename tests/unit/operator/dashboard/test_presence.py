"""Which watches are said not to work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from convoy_controllers.resources import NODE_HEALTHS
from convoy_operator import errors
from convoy_operator.dashboard.presence import LASTING_SECONDS, NotedGateway, Presence

FORBIDDEN = errors.Forbidden(403, "no right")
BROKEN = errors.Unavailable(500, "broken")
OLD = errors.Gone(410, "too old")
LONG = LASTING_SECONDS + 1


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Answering:
    """An API server that is there."""

    async def answers(self) -> None:
        return None


@pytest.mark.parametrize(
    ("steps", "told", "behind"),
    [
        ([("list", FORBIDDEN)], True, False),
        ([("list", FORBIDDEN), ("list", None)], False, False),
        # Who may list and not watch is told of it without a pause.
        ([("list", None), ("watch", FORBIDDEN), ("list", None)], True, False),
        ([("watch", FORBIDDEN), ("watch", None)], False, False),
        ([("watch", BROKEN)], False, False),
        ([("watch", BROKEN), LONG], True, False),
        ([("watch", BROKEN), LONG, ("watch", None)], False, False),
        ([("watch", BROKEN), LONG / 2, ("watch", BROKEN), LONG / 2], True, False),
        ([("watch", BROKEN), LONG / 2, ("watch", None), ("watch", BROKEN), LONG / 2], False, False),
        ([("watch", OLD), LONG], False, False),
        # While nobody answers the absence is told, not each watch.
        ([("watch", BROKEN), "away", LONG], False, False),
        # Reflectors wait before they try again: until then what is shown is old.
        (["away", ("watch", BROKEN), LONG, "back"], False, True),
        (["away", ("watch", BROKEN), LONG, "back", ("watch", None)], False, False),
        (["away", ("watch", BROKEN), LONG, "back", LONG], True, False),
    ],
)
def test_what_is_told_of_a_watch(steps: list[Any], told: bool, behind: bool) -> None:
    clock, rung = Clock(), []
    presence = Presence(Answering(), lambda: rung.append(1), clock)  # type: ignore[arg-type]
    for step in steps:
        match step:
            case "away":
                presence.away_since = datetime.now(UTC)
            case (how, None):
                presence.works(NODE_HEALTHS, how)
            case (how, fault):
                presence.fails(NODE_HEALTHS, how, fault)
            case "back":
                asyncio.run(presence.beat())
            case seconds:
                clock.now += seconds
                presence.look()
    assert list(presence.refused) == (["nodehealths"] if told else [])
    assert presence.behind == (["nodehealths"] if behind else [])
    assert len(rung) >= told + behind


class Quiet:
    """A watch that tells nothing; it is taken when the test says so."""

    def __init__(self) -> None:
        self.taken = asyncio.Event()

    async def watch(self, *given: Any) -> AsyncIterator[Any]:
        await self.taken.wait()
        given[-1]()
        await asyncio.sleep(60)
        yield "MODIFIED", {}


def test_a_watch_works_when_it_is_taken_and_not_before(
    virtual: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def play() -> None:
        presence, quiet = Presence(None, lambda: None), Quiet()  # type: ignore[arg-type]
        presence.fails(NODE_HEALTHS, "watch", FORBIDDEN)
        events = NotedGateway(quiet, presence).watch(NODE_HEALTHS, "1")  # type: ignore[arg-type]
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(LASTING_SECONDS)
        assert presence.refused, "one that hangs does not work"
        quiet.taken.set()
        await asyncio.sleep(0.1)
        assert not presence.refused
        waiting.cancel()

    virtual(play())
