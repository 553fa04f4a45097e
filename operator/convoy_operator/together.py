"""Parts of a process whose lives are tied."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable


async def together(parts: list[Awaitable[None]]) -> None:
    """Runs all; when one ends the others are cancelled and awaited, and its error, if any, raised."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
