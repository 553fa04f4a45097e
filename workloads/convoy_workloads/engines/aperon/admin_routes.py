"""The admin route that makes a snapshot: a folder with all records, from which other replicas may start."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any, Protocol

import orjson
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from convoy_workloads.engines.aperon.errors import AperonError
from convoy_workloads.engines.aperon.index import VectorIndex
from convoy_workloads.engines.aperon.opening import copy_folder
from convoy_workloads.serving.extensions import Caller

MAX_BODY = 1 << 16
"""Maximum number of bytes of a body."""


class Owner(Protocol):
    """The part of the engine that the routes use."""

    @property
    def parts(self) -> Any:
        """Return the open index with its threads."""
        ...


class IndexRoutes:
    """The route `POST /index/snapshot`."""

    def __init__(self, engine: Owner, call: Caller) -> None:
        """`call` calls a function in the compute thread."""
        self._engine, self._call = engine, call

    def all(self) -> list[Route]:
        """Return the routes."""
        return [Route("/index/snapshot", self.snapshot, methods=["POST"])]

    async def snapshot(self, request: Request) -> Response:
        """Write a snapshot into the empty folder of the body, `{"folder": PATH}`."""
        try:
            folder = _folder(await request.body())
            parts = await self._call(lambda: self._engine.parts)
            if parts.ensemble.world > 1:
                raise ValueError("a replica of several pods has no snapshot: make one with groupSize 1")
            sequence = await asyncio.to_thread(make_snapshot, parts.shard.index, parts.folder, folder)
        except (ValueError, OSError, AperonError) as error:
            return JSONResponse({"error": str(error)}, 400)
        return JSONResponse({"folder": str(folder), "sequence": sequence})


def _folder(body: bytes) -> Path:
    """Return the folder in the body of a request. Raises ValueError if the body names no absolute path."""
    if len(body) > MAX_BODY:
        raise ValueError(f"the body must have at most {MAX_BODY} bytes")
    found = orjson.loads(body or b"{}")
    folder = found.get("folder") if isinstance(found, dict) else None
    if not isinstance(folder, str) or not folder.startswith("/"):
        raise ValueError("folder: must be an absolute path")
    return Path(folder)


def make_snapshot(index: VectorIndex, own_folder: Path, folder: Path) -> int:
    """Write a snapshot into an empty folder, perhaps of another file system. Return the number of its last
    operation. `own_folder`: folder of the index.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"folder: {folder} is not empty")
    own = own_folder.with_name(f"{own_folder.name}.snapshot")
    shutil.rmtree(own, ignore_errors=True)
    try:
        # A copy by links takes no time, so writes wait only for it.
        sequence = index.fork(own)
        copy_folder(own, folder.with_name(f"{folder.name}.incoming"))
        folder.with_name(f"{folder.name}.incoming").replace(folder)
    finally:
        shutil.rmtree(own, ignore_errors=True)
    return sequence
