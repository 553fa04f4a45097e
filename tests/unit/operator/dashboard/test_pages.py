"""Pages as their readers may see them, without a browser."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from nicegui import Client
from nicegui.page import page
from starlette.requests import Request
from tests.unit.operator.dashboard.builders import health, kept, node, pod, texts

from convoy_operator.dashboard.auth.identity import Identity
from convoy_operator.dashboard.core.objects import Kept
from convoy_operator.dashboard.feed import Feed
from convoy_operator.dashboard.pages.job import JobPage
from convoy_operator.dashboard.settings import AuthMode, DashboardSettings
from convoy_operator.dashboard.world import World


class Reader:
    """May list the jobs of all namespaces, and perhaps nodes."""

    unanswered = False

    def __init__(self, nodes: bool) -> None:
        self._nodes = nodes

    async def namespaces(self, asked: Iterable[str]) -> frozenset[str]:
        return frozenset(asked)

    async def nodes(self) -> bool:
        return self._nodes


@pytest.mark.parametrize(("may", "rack"), [(True, "r1"), (False, "-")])
def test_racks_are_shown_to_who_may_list_nodes(may: bool, rack: str) -> None:
    world = World(Feed())
    world.jobs.upsert(kept("gpt", phase="Running"))
    world.pods.upsert(pod("gpt-w-0", owner_uid="u-gpt"))
    world.nodes.upsert(node())
    world.healths.upsert(Kept("", "hw", "u-hw", 1, health("Qualified")))
    context: Any = SimpleNamespace(
        world=world,
        settings=DashboardSettings(logs=False),
        presence=SimpleNamespace(away_since=None, behind=[], refused={}),
        loading=list,
        door=SimpleNamespace(mode=AuthMode.NONE),
    )
    session: Any = SimpleNamespace(identity=Identity("ada"), access=Reader(may), over=False)
    request = Request({"type": "http", "path": "/jobs/team/gpt", "headers": [], "query_string": b""})

    async def play() -> None:
        with Client(page(""), request=request) as client:
            shown = JobPage(context, session, "team", "gpt", "/jobs/team/gpt", "")
            shown._look_at_events = lambda _: None  # type: ignore[method-assign]  # nobody has any
            await shown.ask()
            shown.show()
        assert [line[1::2] for line in texts(list(shown._pods._rows))] == [["gpt-w-0", "node-1", "-"]]
        assert texts(list(shown._pods._rows))[0][4] == rack
        client.delete()

    asyncio.run(play())
