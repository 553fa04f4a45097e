"""Tests of the optional APIs that the operator finds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from convoy_controllers.resources import COSCHEDULING_POD_GROUPS, KUEUE_WORKLOADS
from convoy_operator import errors
from convoy_operator.discovery import DISCOVERY_SECONDS, Discovery


class Server:
    """An API server that serves some resources, and sometimes fails."""

    def __init__(self) -> None:
        self.names: dict[str, set[str]] = {}
        self.failing: set[str] = set()

    async def served(self, group: str, version: str) -> frozenset[str]:
        if group in self.failing:
            raise errors.Unavailable(0, "away")
        return frozenset(self.names.get(group, ()))


def discovery(server: Server) -> Discovery:
    return Discovery(server, [KUEUE_WORKLOADS, COSCHEDULING_POD_GROUPS])  # type: ignore[arg-type]  # a part


def test_an_api_that_is_installed_or_removed_is_noticed(virtual: Callable[..., Any]) -> None:
    async def play() -> None:
        server, changes = Server(), []
        found = discovery(server)
        found.on_change = lambda: changes.append(found.served)
        running = asyncio.create_task(found.run())
        await asyncio.sleep(1)
        server.names[KUEUE_WORKLOADS.group] = {"workloads", "clusterqueues"}
        await asyncio.wait_for(found.until(KUEUE_WORKLOADS, served=True), 2 * DISCOVERY_SECONDS)
        server.names.clear()
        await asyncio.wait_for(found.until(KUEUE_WORKLOADS, served=False), 2 * DISCOVERY_SECONDS)
        running.cancel()
        assert changes == [frozenset({KUEUE_WORKLOADS}), frozenset()]

    virtual(play())


def test_an_api_whose_request_fails_keeps_its_earlier_state(virtual: Callable[..., Any]) -> None:
    async def play() -> None:
        server = Server()
        server.names[KUEUE_WORKLOADS.group] = {"workloads"}
        found = discovery(server)
        await found.refresh()
        server.failing.add(KUEUE_WORKLOADS.group)
        await found.refresh()
        assert found.served == {KUEUE_WORKLOADS}

    virtual(play())


def test_a_leader_waits_until_every_group_was_read(virtual: Callable[..., Any]) -> None:
    async def play() -> None:
        server = Server()
        server.names[KUEUE_WORKLOADS.group] = {"workloads"}
        server.failing.add(KUEUE_WORKLOADS.group)
        found = discovery(server)
        first = asyncio.create_task(found.first())
        await asyncio.sleep(60)
        assert not first.done()
        server.failing.clear()
        await asyncio.wait_for(first, 60)
        assert found.served == {KUEUE_WORKLOADS}

    virtual(play())
