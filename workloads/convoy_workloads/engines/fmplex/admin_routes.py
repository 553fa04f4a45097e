"""The admin routes of tasks. A change lasts until the replica's process ends; `params.tasks` is for lasting
ones.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from convoy_workloads.engines.fmplex.params import Task
from convoy_workloads.engines.fmplex.tasks import VirtualModel
from convoy_workloads.serving.extensions import Caller
from convoy_workloads.serving.protocol import ModelError

MAX_BODY = 1 << 16
"""Maximum number of bytes of a body."""


class TaskUpdate(BaseModel):
    """The parameters of a task that may change while it serves."""

    model_config = ConfigDict(extra="forbid", strict=True)

    weight: Annotated[float, Field(gt=0, le=1e6)] | None = None
    max_queue: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    slo_ms: Annotated[int, Field(ge=0, le=86_400_000)] | None = None


class TaskTable(Protocol):
    """The part of the engine that the routes use, in the compute thread."""

    def attach(self, task: Task) -> None:
        """Add a task. Raises ValueError or ModelError if that is not possible."""
        ...

    def detach(self, name: str) -> Future[None]:
        """Remove a task once its last request has ended. Raises KeyError if there is no such task."""
        ...

    def update(self, name: str, changes: dict[str, Any]) -> None:
        """Change parameters of a task. Raises KeyError if there is no such task."""
        ...

    def models(self) -> list[VirtualModel]:
        """Return all tasks."""
        ...


class TaskRoutes:
    """The routes `GET /tasks`, `POST /tasks`, and `PATCH` and `DELETE /tasks/NAME`."""

    def __init__(self, table: TaskTable, call: Caller) -> None:
        """`call` calls a function in the compute thread."""
        self._table = table
        self._call = call

    def all(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/tasks", self.list, methods=["GET"]),
            Route("/tasks", self.attach, methods=["POST"]),
            Route("/tasks/{task}", self.update, methods=["PATCH"]),
            Route("/tasks/{task}", self.detach, methods=["DELETE"]),
        ]

    async def list(self, _: Request) -> Response:
        """Return all tasks."""
        models = await self._call(self._table.models)
        return JSONResponse({"tasks": [_entry(model) for model in models]})

    async def attach(self, request: Request) -> Response:
        """Add the task in the body."""
        try:
            task = Task.model_validate_json(await _body(request))
            await self._call(lambda: self._table.attach(task))
        except (ValueError, ModelError) as error:
            return _refused(error)
        return JSONResponse({"attached": task.name}, 201)

    async def update(self, request: Request) -> Response:
        """Change the weight, the queue's bound or the target of a task."""
        name = request.path_params["task"]
        try:
            wanted = TaskUpdate.model_validate_json(await _body(request))
            changes = wanted.model_dump(exclude_none=True)
            await self._call(lambda: self._table.update(name, changes))
        except ValueError as error:
            return _refused(error)
        except KeyError:
            return _unknown(name)
        return JSONResponse({"updated": name})

    async def detach(self, request: Request) -> Response:
        """Remove a task. The response comes when the task's last request has ended."""
        name = request.path_params["task"]

        def start() -> Future[None]:
            return self._table.detach(name)

        try:
            done = await self._call(start)
        except KeyError:
            return _unknown(name)
        await asyncio.wrap_future(done)
        return JSONResponse({"detached": name})


def _entry(model: VirtualModel) -> dict[str, Any]:
    return {
        **model.task.model_dump(),
        "backbone": model.assignment.backbone.name,
        "digest": model.digest,
        "pod": model.assignment.pod,
        "slot": model.assignment.slot,
        "pending": model.pending,
        "detaching": bool(model.detached),
        "requests": dict(model.stats.outcomes),
        "serviceSeconds": round(model.stats.busy_seconds, 6),
        "sloMissed": model.stats.slo_missed,
    }


async def _body(request: Request) -> bytes:
    """Return the body. Raises ValueError if it is too long."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY:
            raise ValueError(f"the body must have at most {MAX_BODY} bytes")
        parts.append(part)
    return b"".join(parts)


def _refused(error: Exception) -> Response:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        where = ".".join(str(one) for one in first["loc"])
        return JSONResponse({"error": f"{where}: {first['msg']}" if where else first["msg"]}, 400)
    return JSONResponse({"error": str(error)}, 400)


def _unknown(name: str) -> Response:
    return JSONResponse({"error": f"there is no task {name!r}; GET /tasks lists all"}, 404)
