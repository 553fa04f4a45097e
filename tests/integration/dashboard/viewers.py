"""Users without a browser, who load the overview and receive its updates."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import aiohttp
import socketio
from tests.integration.dashboard import sockets

OPEN_SECONDS = 60.0


class Viewers:
    """A number of users in a separate thread. Use the class in a `with` statement."""

    def __init__(self, url: str, number: int, cookie: str = "") -> None:
        """Prepare `number` users. `cookie` is the Cookie header, for a dashboard with logins."""
        self._url = url
        self._headers = {"Cookie": cookie} if cookie else {}
        self._number = number
        self._open = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._fault: BaseException | None = None
        self.messages = 0
        """Number of messages that all users received."""
        self.lost = 0
        """Number of connections that the dashboard closed."""

    def __enter__(self) -> Viewers:
        self._thread.start()
        if not self._open.wait(OPEN_SECONDS) or self._fault is not None:
            raise RuntimeError(f"{self._number} viewers could not be opened: {self._fault!r}")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(30)

    async def _run(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with aiohttp.ClientSession(headers=self._headers) as session:
                pages = [await self._page(session) for _ in range(self._number)]
                self._open.set()
                await self._ended.wait()
                await asyncio.gather(*(page.disconnect() for page in pages))
        except Exception as fault:
            self._fault = fault
            self._open.set()

    async def _page(self, session: aiohttp.ClientSession) -> socketio.AsyncClient:
        page = await sockets.load(session, self._url)

        def count(_: str, message: dict[str, Any]) -> None:
            self.messages += 1

        async def on_disconnect(*_: object) -> None:
            self.lost += 1

        client = await sockets.connect(self._url, page.id, self._headers, count)
        client.on("disconnect", on_disconnect)
        return client
