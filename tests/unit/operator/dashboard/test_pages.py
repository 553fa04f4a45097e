"""Tests of pages with different permissions of their users, without a browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from nicegui import Client
from nicegui.page import page
from starlette.requests import Request
from tests.unit.operator.dashboard.builders import health, node, parsed, pod, raw, texts

from convoy_controllers.resources import Resource
from convoy_crds.trainingjob import TrainingJob
from convoy_operator.dashboard.auth.identity import Identity
from convoy_operator.dashboard.cache import DashboardCache
from convoy_operator.dashboard.core.objects import ParsedObject, parser_of
from convoy_operator.dashboard.feed import Feed
from convoy_operator.dashboard.pages.job import JobPage
from convoy_operator.dashboard.settings import AuthMode, DashboardSettings


class User:
    """A user who may list the jobs of all namespaces and, if `nodes` is True, the nodes."""

    undecided = False

    def __init__(self, nodes: bool) -> None:
        self._nodes = nodes

    async def namespaces(self, present: Iterable[str], resource: Resource) -> frozenset[str]:
        assert resource.plural == "trainingjobs"
        return frozenset(present)

    async def nodes(self) -> bool:
        return self._nodes


def context_of(cache: DashboardCache) -> Any:
    """Return what a page needs of the dashboard."""
    return SimpleNamespace(
        cache=cache,
        settings=DashboardSettings(logs=False),
        api_monitor=SimpleNamespace(unavailable_since=None, recovering=[], unwatched={}),
        loading=list,
        session_resolver=SimpleNamespace(mode=AuthMode.NONE),
    )


@asynccontextmanager
async def job_page(cache: DashboardCache, access: User) -> AsyncIterator[tuple[Client, JobPage]]:
    """Show the page of the job team/gpt to a user. Yield its client, within which elements are made."""
    session: Any = SimpleNamespace(identity=Identity("ada"), access=access, over=False)
    request = Request({"type": "http", "path": "/jobs/team/gpt", "headers": [], "query_string": b""})
    with Client(page(""), request=request) as client:
        shown = JobPage(context_of(cache), session, "team", "gpt", "/jobs/team/gpt", "")
        shown._events.refresh = lambda uid: None  # type: ignore[method-assign]  # nobody has any
        await shown.check_access()
        shown.show()
        yield client, shown


@pytest.mark.parametrize(("may", "rack"), [(True, "r1"), (False, "-")])
def test_racks_are_shown_only_to_users_who_may_list_nodes(may: bool, rack: str) -> None:
    cache = DashboardCache(Feed())
    cache.jobs.upsert(parsed("gpt", phase="Running"))
    cache.pods.upsert(pod("gpt-w-0", owner_uid="u-gpt"))
    cache.nodes.upsert(node())
    cache.healths.upsert(ParsedObject("", "hw", "u-hw", 1, health("Qualified")))

    async def play() -> None:
        async with job_page(cache, User(may)) as (client, shown):
            assert [line[1::2] for line in texts(list(shown._pods._rows))] == [["gpt-w-0", "node-1", "-"]]
            assert texts(list(shown._pods._rows))[0][4] == rack
        client.delete()

    asyncio.run(play())


def test_section_of_the_trace_is_shown_once_there_is_a_recording() -> None:
    cache = DashboardCache(Feed())
    cache.jobs.upsert(parsed("gpt", phase="Running"))

    async def play() -> None:
        async with job_page(cache, User(False)) as (client, shown):
            assert shown._trace.props.get("hidden")
            trace = {"recording": 1, "message": "recording 1 waits for step 9", "firstStep": 9, "lastStep": 9}
            later = raw("gpt", phase="Running", trace=trace)
            later["metadata"]["resourceVersion"] = "8"
            cache.jobs.upsert(parser_of(TrainingJob)(later))
            shown.show()
            assert not shown._trace.props.get("hidden")
            assert shown._trace_note.text == "recording 1 waits for step 9"
            assert "9 to 9" in [value.text for _, _, value in shown._trace_facts._known]
        client.delete()

    asyncio.run(play())


@pytest.mark.parametrize("may", [True, False])
def test_the_topology_shows_nodes_only_to_users_who_may_list_them(may: bool) -> None:
    key = "topology.kubernetes.io/rack"
    placed = {"keys": [{"key": key, "domains": 1, "ranks": [{"name": "r1", "ranks": 1}]}], "hops": 0}
    body = raw("gpt", phase="Running", placement=placed)
    body["spec"]["placement"] = {"topologyKeys": [key]}
    cache = DashboardCache(Feed())
    cache.jobs.upsert(parser_of(TrainingJob)(body))
    cache.pods.upsert(pod("gpt-w-0", owner_uid="u-gpt"))
    cache.nodes.upsert(node(labels={key: "r1"}))

    async def play() -> None:
        async with job_page(cache, User(may)) as (client, shown):
            section = shown._topology
            assert not section._section.props.get("hidden")
            (rack,) = section._shown
            assert (rack.name, [one.name for one in rack.inside]) == ("r1", ["node-1"] if may else [])
            assert section._waiting.text.startswith("1 pod waits for a node (gpt-w-1)")
            drawn = [one for one in client.elements.values() if "domain" in one.classes]
            assert len(drawn) == (2 if may else 1)
            section.show(None)
            assert section._section.props.get("hidden")
        client.delete()

    asyncio.run(play())
