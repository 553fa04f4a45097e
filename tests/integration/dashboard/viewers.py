"""Readers without a browser: they load the overview, and take what the dashboard tells its page."""

from __future__ import annotations

import asyncio
import re
import threading
import uuid
from typing import Any

import aiohttp
import socketio

ACK_SECONDS = 3.0
"""Between two acknowledgements, as NiceGUI's pages send them."""
OPEN_SECONDS = 60.0


class Viewers:
    """So many of them, in a thread of their own; use it as `with`."""

    def __init__(self, url: str, number: int, cookie: str = "") -> None:
        """`cookie`: the header, where one has to be logged in."""
        self._url = url
        self._headers = {"Cookie": cookie} if cookie else {}
        self._number = number
        self._open = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._fault: BaseException | None = None
        self.told = 0
        """Messages that all of them got."""
        self.lost = 0
        """Connections that were ended."""

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
        async with session.get(self._url) as answer:
            page = await answer.text()
        found = re.search(r"['\"]client_id['\"]: ['\"]([0-9a-f-]+)", page)
        assert found is not None, page[-2000:]
        ids = {name: str(uuid.uuid4()) for name in ("document_id", "tab_id")}
        asked = {"client_id": found[1], "next_message_id": "0", "implicit_handshake": "true", **ids}
        query = "&".join(f"{name}={value}" for name, value in asked.items())
        client = socketio.AsyncClient(handle_sigint=False, reconnection=False)
        newest = 0

        async def take(_: str, message: dict[str, Any] | None = None) -> None:
            nonlocal newest
            self.told += 1
            newest = max(newest, (message or {}).get("_id", 0) + 1)

        async def lose(*_: object) -> None:
            self.lost += 1

        async def acknowledge() -> None:
            while client.connected:
                await client.emit("ack", {"client_id": found[1], "next_message_id": newest})
                await asyncio.sleep(ACK_SECONDS)

        client.on("*", take)
        client.on("disconnect", lose)
        await client.connect(
            f"{self._url}?{query}",
            headers={"Origin": self._url, **self._headers},
            transports=["websocket"],
            socketio_path="/_nicegui_ws/socket.io",
        )
        client.start_background_task(acknowledge)
        return client
