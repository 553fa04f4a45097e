"""Runs the concurrent parts of a process, which end together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable


async def run_until_first_exit(parts: list[Awaitable[None]]) -> None:
    """Run all parts until one of them ends. Then cancel the other parts, wait for them, and raise the error
    of the ended part, if any.
    """
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
