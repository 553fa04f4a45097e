"""Tests of the tables of SpotPools, and of a pool's page for users with different rights."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from nicegui import Client
from nicegui.page import page
from starlette.requests import Request
from tests.unit.controllers.spot_cluster import ON_DEMAND_LABELS, SpotCluster, make_pool
from tests.unit.operator.dashboard.builders import texts

from convoy_crds.spotpool import SpotPool
from convoy_operator.dashboard.auth.identity import Identity
from convoy_operator.dashboard.auth.request_guard import is_page
from convoy_operator.dashboard.cache import DashboardCache
from convoy_operator.dashboard.core import spot_pools
from convoy_operator.dashboard.core.objects import ParsedObject
from convoy_operator.dashboard.feed import Feed
from convoy_operator.dashboard.pages.spot_pool import SpotPoolPage
from convoy_operator.dashboard.settings import AuthMode

FALLBACK = {"onDemandSelector": {"matchLabels": ON_DEMAND_LABELS}, "after": "1s"}


def used(**spec: Any) -> SpotCluster:
    """Return a cluster with two nodes, one of which two namespaces have used for an hour."""
    cluster = SpotCluster(pool=make_pool(**spec))
    cluster.claim(2, "team")
    cluster.claim(2, "other")
    for name in "ab":
        cluster.add_node(name)
    cluster.add_pod("one", "a", "team")
    cluster.add_pod("two", "a", "other")
    cluster.step()
    cluster.wait(3600, tick=900)
    return cluster


def parsed(pool: SpotPool | None, error: str = "") -> ParsedObject[SpotPool]:
    return ParsedObject("", "pool", "pool-uid", 1, pool, error)


def test_a_pool_in_a_row() -> None:
    row = spot_pools.row(parsed(used().pool))
    assert [cell.text for cell in row.cells] == ["pool", "Ready", "2", "0", "0", "0.25", "0.50", "0.50", "-"]
    assert row.cells[0].href == "/spot/pool"
    assert is_page(row.cells[0].href)


def test_an_unreadable_pool_has_a_row_and_a_concern() -> None:
    found = parsed(None, "spec.price is missing")
    row = spot_pools.row(found)
    assert (row.group, row.cells[-1].text) == ("Unreadable", "spec.price is missing")
    assert len(row.cells) == len(spot_pools.COLUMNS)
    assert [one.what for one in spot_pools.concerns([found])] == ["SpotPool unreadable"]


@pytest.mark.parametrize(
    ("cluster", "state", "concerns"),
    [
        (SpotCluster(), "Waiting", []),
        (used(budget={"maxSpend": 0.4}), "Problem", ["Spot pool held up"] * 2),
    ],
)
def test_the_state_of_a_pool(cluster: SpotCluster, state: str, concerns: list[str]) -> None:
    cluster.step()
    assert spot_pools.state(cluster.pool) == state
    assert [one.what for one in spot_pools.concerns([parsed(cluster.pool)])] == concerns


def test_a_fallen_back_pool_says_so() -> None:
    cluster = SpotCluster(pool=make_pool(fallback=FALLBACK))
    cluster.claim(1)
    cluster.wait(10, tick=5)
    assert spot_pools.state(cluster.pool) == "OnDemand"
    assert spot_pools.why(cluster.pool).startswith("NoSpotNode: ")


def test_a_pool_without_an_operator_is_new() -> None:
    pool = make_pool()
    assert spot_pools.state(pool) == "New"
    assert "no operator" in spot_pools.why(pool)


def test_the_cost_of_other_namespaces_is_one_part() -> None:
    pool = used().pool
    assert texts(spot_pools.cost_rows(pool, frozenset({"team", "other"}))) == [
        ["namespace other", "0.12", "25%"],
        ["namespace team", "0.12", "25%"],
        ["unused", "0.25", "50%"],
        ["not observed", "0.00", "0%"],
    ]
    mine = texts(spot_pools.cost_rows(pool, frozenset({"team"})))
    assert mine[:2] == [["namespace team", "0.12", "25%"], ["other namespaces", "0.12", "25%"]]


class User:
    """A user who may see the jobs of namespace `team` and, if `nodes` is True, the nodes."""

    undecided = False

    def __init__(self, nodes: bool) -> None:
        self._nodes = nodes

    async def namespaces(self, present: Iterable[str]) -> frozenset[str]:
        return frozenset(present) & {"team"}

    async def nodes(self) -> bool:
        return self._nodes


@pytest.mark.parametrize("may", [True, False])
def test_the_page_shows_only_what_its_user_may_see(may: bool) -> None:
    cluster = used()
    cluster.notify("a", seconds=60)
    cluster.step()
    cache = DashboardCache(Feed())
    cache.pools.upsert(parsed(cluster.pool))
    context: Any = SimpleNamespace(
        cache=cache,
        api_monitor=SimpleNamespace(unavailable_since=None, recovering=[], unwatched={}),
        loading=list,
        session_resolver=SimpleNamespace(mode=AuthMode.NONE),
    )
    session: Any = SimpleNamespace(identity=Identity("ada"), access=User(may), over=False)
    request = Request({"type": "http", "path": "/spot/pool", "headers": [], "query_string": b""})

    async def play() -> None:
        with Client(page(""), request=request) as client:
            shown = SpotPoolPage(context, session, "pool", "/spot/pool")
            await shown.check_access()
            shown.show()
        notices = texts(list(shown._notices._rows))
        grants = texts(list(shown._grants._rows))
        assert [line[0:3] for line in notices] == ([["a", "Preemption", "Noticed"]] if may else [])
        assert [line[0] for line in grants] == (["team/job"] if may else [])
        client.delete()

    asyncio.run(play())
