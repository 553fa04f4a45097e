"""A client that loads a page and opens its websocket, without a browser."""

from __future__ import annotations

import asyncio
import html
import json
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import socketio

ACK_SECONDS = 3.0
"""Seconds between two acknowledgements. NiceGUI's pages use the same interval."""
OnEvent = Callable[[str, dict[str, Any]], None]


@dataclass(frozen=True)
class Loaded:
    """A page as it was loaded, before any update."""

    id: str
    elements: dict[str, dict[str, Any]]

    def click(self, label: str) -> dict[str, Any]:
        """Return the websocket message for a click on the only button with this label."""
        ((key, button),) = (
            (key, one)
            for key, one in self.elements.items()
            if one.get("tag") == "button" and one.get("text") == label
        )
        (listener,) = button["events"]
        return {"id": int(key), "client_id": self.id, "listener_id": listener["listener_id"], "args": []}


async def load(session: aiohttp.ClientSession, url: str) -> Loaded:
    """Load a page and return it."""
    async with session.get(url) as response:
        page = await response.text()
    name = re.search(r"['\"]client_id['\"]: ['\"]([0-9a-f-]+)", page)
    elements = re.search(r"parseElements\(String\.raw`(.*?)`\)", page, re.DOTALL)
    assert name is not None and elements is not None, page[-2000:]
    return Loaded(name[1], json.loads(html.unescape(elements[1])))


async def connect(url: str, page: str, headers: dict[str, str], on_event: OnEvent) -> socketio.AsyncClient:
    """Open the websocket of a page and acknowledge its messages. `on_event` is called with the name and the
    data of each message.
    """
    ids = {name: str(uuid.uuid4()) for name in ("document_id", "tab_id")}
    params = {"client_id": page, "next_message_id": "0", "implicit_handshake": "true", **ids}
    query = "&".join(f"{name}={value}" for name, value in params.items())
    client = socketio.AsyncClient(handle_sigint=False, reconnection=False)
    newest = 0

    async def on_message(name: str, message: dict[str, Any] | None = None) -> None:
        nonlocal newest
        newest = max(newest, (message or {}).get("_id", 0) + 1)
        on_event(name, message or {})

    async def acknowledge() -> None:
        while client.connected:
            await client.emit("ack", {"client_id": page, "next_message_id": newest})
            await asyncio.sleep(ACK_SECONDS)

    client.on("*", on_message)
    await client.connect(
        f"{url}?{query}",
        headers={"Origin": url, **headers},
        transports=["websocket"],
        socketio_path="/_nicegui_ws/socket.io",
    )
    client.start_background_task(acknowledge)
    return client
