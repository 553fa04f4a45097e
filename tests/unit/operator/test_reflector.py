"""Tests of the reflector with a scripted API server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from convoy_controllers.cached import Node
from convoy_controllers.resources import NODES
from convoy_operator import errors, views
from convoy_operator.cache import Store
from convoy_operator.metrics import Metrics
from convoy_operator.reflector import Reflector, Source


def node(name: str, version: int, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), "labels": labels}
    }


def bookmark(version: int) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": str(version)}}


class Script:
    """A server whose LISTs and WATCHes follow a script. A step that is an error is raised."""

    def __init__(self, lists: list[Any], watches: list[Any]) -> None:
        self.lists, self.watches = lists, watches
        self.watched_from: list[str] = []
        self.over = asyncio.Event()

    async def list(self, resource: Any, selector: str = "") -> tuple[list[Any], str]:
        step = self.lists.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    async def watch(self, resource: Any, version: str, selector: str = "") -> AsyncIterator[tuple[str, Any]]:
        self.watched_from.append(version)
        if not self.watches:
            self.over.set()
            await asyncio.Event().wait()
        for step in self.watches.pop(0):
            if isinstance(step, Exception):
                raise step
            yield step


async def follow(script: Script, metrics: Metrics | None = None, selector: str = "") -> Store[Node]:
    store: Store[Node] = Store()
    source = Source(NODES, store, views.node, selector)
    reflector = Reflector(script, source, metrics or Metrics())  # type: ignore[arg-type]
    task = asyncio.create_task(reflector.run())
    await asyncio.wait_for(script.over.wait(), 600)
    assert reflector.synced.is_set()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return store


def names(store: Store[Node]) -> set[str]:
    return {item.name for item in store}


def test_a_watch_resumes_from_the_last_bookmark(virtual: Any) -> None:
    async def scenario() -> None:
        script = Script(
            [([node("a", 5)], "10")],
            [[("ADDED", node("b", 11)), ("BOOKMARK", bookmark(40))], [("DELETED", node("a", 41))]],
        )
        assert names(await follow(script)) == {"b"}
        assert script.watched_from == ["10", "40", "41"]

    virtual(scenario())


def test_an_object_may_lose_and_regain_the_watched_label(virtual: Any) -> None:
    async def scenario(selector: str) -> set[str]:
        events = [("DELETED", node("a", 11)), ("ADDED", node("a", 12))]
        return names(await follow(Script([([node("a", 5)], "10")], [events]), selector=selector))

    assert virtual(scenario("a=b")) == {"a"}
    assert virtual(scenario("")) == set()


def test_a_compacted_version_lists_again_and_drops_deleted_objects(virtual: Any) -> None:
    async def scenario() -> None:
        script = Script(
            [([node("a", 5), node("b", 6)], "10"), ([node("b", 6), node("c", 30)], "50")],
            [[errors.Gone(410, "too old")]],
        )
        began = asyncio.get_running_loop().time()
        assert names(await follow(script)) == {"b", "c"}
        assert script.watched_from == ["10", "50"]
        assert asyncio.get_running_loop().time() - began < 0.5, "that is no server error"

    virtual(scenario())


def test_a_broken_connection_does_not_list_again(virtual: Any) -> None:
    async def scenario() -> None:
        script = Script(
            [([node("a", 5)], "10")],
            [
                [("ADDED", node("b", 12)), errors.Unavailable(0, "reset")],
                [errors.Unavailable(0, "refused")],
            ],
        )
        metrics = Metrics()
        assert names(await follow(script, metrics)) == {"a", "b"}
        assert script.watched_from == ["10", "12", "12"]
        value, nodes = metrics.registry.get_sample_value, {"resource": "nodes"}
        assert value("convoy_watch_errors_total", nodes) == 2
        assert value("convoy_watch_relists_total", nodes) == 1
        assert time.time() - 60 < (value("convoy_watch_heard_timestamp_seconds", nodes) or 0) <= time.time()

    virtual(scenario())


@pytest.mark.parametrize(
    "fault", [errors.Forbidden(403, "no"), errors.Unavailable(503, "no"), errors.TooManyRequests(429, "no")]
)
def test_a_failed_list_is_retried_until_success(virtual: Any, fault: Exception) -> None:
    async def scenario() -> None:
        began = asyncio.get_running_loop().time()
        script = Script([fault] * 8 + [([node("a", 5)], "10")], [])
        assert names(await follow(script)) == {"a"}
        waited = asyncio.get_running_loop().time() - began
        assert 30 < waited < 8 * 30, "with growing pauses"

    virtual(scenario())


def test_a_reflector_lists_again_after_the_resync_time(virtual: Any) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        script = Script([([node("a", 5)], "10"), ([], "60")], [[("BOOKMARK", bookmark(20))]])
        store: Store[Node] = Store()
        clock = iter([0.0, 0.0, 601.0, 601.0, 601.0, 601.0, 601.0])
        reflector = Reflector(
            script,
            Source(NODES, store, views.node),
            Metrics(),
            resync_seconds=600,
            clock=lambda: next(clock, 601.0),  # type: ignore[arg-type]
        )
        task = loop.create_task(reflector.run())
        await asyncio.wait_for(script.over.wait(), 60)
        task.cancel()
        assert names(store) == set()

    virtual(scenario())


def test_a_requested_list_ends_a_hanging_watch(virtual: Any) -> None:
    async def scenario() -> None:
        script = Script([([node("a", 1)], "10"), ([node("b", 21)], "30")], [])
        store: Store[Node] = Store()
        reflector = Reflector(script, Source(NODES, store, views.node), Metrics())  # type: ignore[arg-type]
        task = asyncio.create_task(reflector.run())
        await asyncio.wait_for(script.over.wait(), 600)
        script.over.clear()
        await reflector.list()
        await asyncio.wait_for(script.over.wait(), 600)
        assert script.watched_from == ["10", "30"] and names(store) == {"b"}
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()

    virtual(scenario())
