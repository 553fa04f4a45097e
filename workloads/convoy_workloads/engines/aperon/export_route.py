"""The route `GET /v1/vectors/export`: all records of an index, as they are when the request comes.

The response is a stream of frames (`exported.py`). A client that reads slowly slows the export down. The
records of a group come shard after shard.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any, Protocol

from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from convoy_workloads.engines.aperon.ensemble import Ensemble
from convoy_workloads.engines.aperon.errors import AperonError
from convoy_workloads.engines.aperon.exported import Encoder
from convoy_workloads.engines.aperon.settings import IndexSettings
from convoy_workloads.runtime.log import log_line
from convoy_workloads.serving.errors import RequestError
from convoy_workloads.serving.front import RETRY_SECONDS, Front, request_id

CONCURRENT = 2
"""Number of exports at a time. Each keeps the files of its records."""
LONGEST_SECONDS = 3600.0
"""Longest time of an export."""
STALL_SECONDS = 60.0
"""Longest time that a client may take to read a part."""
MEDIA_TYPE = "application/vnd.convoy.vectors"


class Owner(Protocol):
    """The part of the engine that the route uses."""

    @property
    def parts(self) -> Any:
        """Return the open index with its threads."""
        ...

    @property
    def settings(self) -> IndexSettings:
        """Return the settings of the index."""
        ...


class ExportRoute:
    """The route of one replica."""

    def __init__(self, front: Front, engine: Owner) -> None:
        self._front, self._engine = front, engine
        self.running = 0
        """Number of exports that run."""

    def all(self) -> list[Route]:
        """Return the route."""
        return [Route("/v1/vectors/export", self.export, methods=["GET"])]

    async def export(self, http: HttpRequest) -> Response:
        """Respond with all records."""
        headers: dict[bytes, bytes] = dict(http.scope["headers"])
        self._front.check(headers)
        if self.running >= CONCURRENT:
            self._front.metrics.refused("queue_full")
            why = f"this replica has {CONCURRENT} exports already: try again later"
            raise RequestError(503, why, code="busy", retry=RETRY_SECONDS)
        return _Stream(self, self._engine.parts.ensemble, self._engine.settings, request_id(headers))


class _Stream(StreamingResponse):
    """The response. If it fails, the connection ends without the last frame."""

    def __init__(self, route: ExportRoute, ensemble: Ensemble, settings: IndexSettings, id_: str) -> None:
        self._route, self._ensemble, self._settings = route, ensemble, settings
        super().__init__(self._frames(), headers={"x-request-id": id_}, media_type=MEDIA_TYPE)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def bounded(message: Any) -> None:
            async with asyncio.timeout(STALL_SECONDS):
                await send(message)

        self._route.running += 1
        try:
            async with asyncio.timeout(LONGEST_SECONDS), contextlib.aclosing(self.body_iterator):  # type: ignore[type-var]
                await super().__call__(scope, receive, bounded)
        except (TimeoutError, RuntimeError, OSError, AperonError) as error:
            log_line(f"an export has ended early: {error or type(error).__name__}")
        finally:
            self._route.running -= 1

    async def _frames(self) -> AsyncIterator[bytes]:
        ensemble, encoder, started = self._ensemble, Encoder(), time.monotonic()
        opened = await asyncio.to_thread(ensemble.open_export)
        try:
            records = sum(one for _, one in opened)
            yield encoder.settings(self._settings, records)
            for rank, (number, _) in enumerate(opened):
                while data := await asyncio.to_thread(ensemble.next_export, rank, number):
                    yield encoder.records(data)
            yield encoder.end(records)
            log_line(f"exported {records} records in {time.monotonic() - started:.1f} s")
        finally:
            await asyncio.to_thread(ensemble.close_export, [number for number, _ in opened])
