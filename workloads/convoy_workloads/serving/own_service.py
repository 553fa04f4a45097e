"""The task in which an engine's own service runs (`extensions.OwnService`)."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

from convoy_workloads.runtime.log import log_line
from convoy_workloads.serving.extensions import OwnService

STOP_SECONDS = 5.0
"""Seconds for the service to end after it has been cancelled."""
LEAST_DRAIN_SECONDS = 1.0
"""Minimum seconds for the service to finish, if the requests have used up the drain time."""


class ServiceTask:
    """The service of an engine, or of an engine that has none."""

    def __init__(self, engine: object) -> None:
        self._engine = engine if isinstance(engine, OwnService) else None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Future[Any]:
        """Start the service. Return a future that is done when the service has ended by itself."""
        if self._engine is None:
            return asyncio.get_running_loop().create_future()
        self._task = asyncio.ensure_future(self._engine.serve())
        return self._task

    @property
    def error(self) -> BaseException | None:
        """Return the error that has ended the service; None if it runs."""
        if self._task is None or not self._task.done() or self._task.cancelled():
            return None
        return self._task.exception() or RuntimeError("the engine's service has ended before the rank")

    async def drain(self, seconds: float) -> None:
        """Let the service finish within `seconds`."""
        if self._engine is None or self.error is not None:
            return
        try:
            async with asyncio.timeout(max(seconds, LEAST_DRAIN_SECONDS)):
                await self._engine.drain()
        except TimeoutError:
            log_line("the engine's service did not finish within the drain time")
        except Exception:  # The end of the rank goes on.
            traceback.print_exc()

    async def stop(self) -> None:
        """Cancel the service and wait for its end."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=STOP_SECONDS)
