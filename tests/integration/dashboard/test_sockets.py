"""Tests that a websocket can send events only for the pages of its own session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import socketio
from tests.integration.dashboard import sockets
from tests.integration.dashboard.conftest import Cluster, Starter
from tests.integration.dashboard.samples import training_job

LIST_JOBS = [{"apiGroups": ["convoy.dev"], "resources": ["trainingjobs"], "verbs": ["list"]}]
REFUSED = "rejected a websocket event for a page of another session"


class User:
    """A logged-in user who has one page open."""

    page: sockets.Loaded
    socket: socketio.AsyncClient

    def __init__(self) -> None:
        self.sorted: list[str] = []
        """The sort order of the jobs after each change."""
        self._more = asyncio.Event()

    def on_event(self, name: str, message: dict[str, Any]) -> None:
        for order in ("ascending", "descending"):
            if name == "update" and f'"aria-sort": "{order}"' in json.dumps(message):
                self.sorted.append(order)
                self._more.set()

    async def wait_for_sort(self) -> None:
        """Wait until the page receives a new sort order."""
        await asyncio.wait_for(self._more.wait(), 20)
        self._more.clear()


@asynccontextmanager
async def user(url: str, token: str) -> AsyncIterator[User]:
    async with aiohttp.ClientSession() as session:
        form = {"data": {"token": token}, "headers": {"Origin": url}, "allow_redirects": False}
        async with session.post(f"{url}/login", **form) as response:
            cookie = {"Cookie": response.headers["Set-Cookie"].partition(";")[0]}
    found = User()
    async with aiohttp.ClientSession(headers=cookie) as session:
        found.page = await sockets.load(session, url)
    found.socket = await sockets.connect(url, found.page.id, cookie, found.on_event)
    try:
        yield found
    finally:
        await found.socket.disconnect()


async def test_a_socket_cannot_act_on_a_page_of_another_session(cluster: Cluster, starter: Starter) -> None:
    cluster.clear()
    cluster.make("trainingjobs", training_job("here"))
    process = starter("TokenReview")
    tokens = [cluster.account(name, LIST_JOBS) for name in ("ada", "eve")]
    async with user(process.url, tokens[0]) as ada, user(process.url, tokens[1]) as eve:
        await eve.socket.emit("event", ada.page.click("Step"))
        # Send an event for Eve's own page. The server handles it after the rejected one.
        await eve.socket.emit("event", eve.page.click("Step"))
        await eve.wait_for_sort()
        assert process.log.read_text().count(REFUSED) == 1
        await ada.socket.emit("event", ada.page.click("Step"))
        await ada.wait_for_sort()
        assert (ada.sorted, eve.sorted) == (["ascending"], ["ascending"])
    process.stop()
