"""The routes below /v1/vectors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import orjson
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from convoy_workloads.engines.aperon import bodies
from convoy_workloads.engines.aperon.batch import refusal
from convoy_workloads.engines.aperon.commands import Command, Count, Fetch, Hits, Search, Stored, VectorWork
from convoy_workloads.engines.aperon.errors import InvalidInput
from convoy_workloads.engines.aperon.export_route import ExportRoute
from convoy_workloads.engines.aperon.filters import parse_filter
from convoy_workloads.engines.aperon.params import Params
from convoy_workloads.engines.aperon.settings import IndexSettings
from convoy_workloads.engines.aperon.shard import Facts
from convoy_workloads.engines.aperon.writer import WriteRefused, WriterEnded, WritesFull
from convoy_workloads.engines.aperon.writes import Writes
from convoy_workloads.serving.asgi import read_body
from convoy_workloads.serving.errors import RequestError, not_ready, queue_full
from convoy_workloads.serving.front import RETRY_SECONDS, Front, outputs_of, request_id

Headers = Mapping[bytes, bytes]
PATH = "/v1/vectors"


class Service(Protocol):
    """The part of the engine that the routes use, in the event loop. It is loaded before them."""

    params: Params

    @property
    def settings(self) -> IndexSettings:
        """Return the settings of the index."""
        ...

    @property
    def writes(self) -> Writes:
        """Return the way of writes."""
        ...

    @property
    def parts(self) -> Any:
        """Return the open index with its threads."""
        ...

    def latest_facts(self) -> Sequence[Facts]:
        """Return the latest facts about the shards."""
        ...


class VectorRoutes:
    """The routes of one replica."""

    def __init__(self, front: Front, service: Service) -> None:
        self._front, self._service = front, service
        self._writes = 0
        self.written = asyncio.Event()
        """Set if no write is in flight."""
        self.written.set()

    def all(self) -> list[Route]:
        """Return the routes."""
        posts = {
            "search": self.search,
            "upsert": self.upsert,
            "delete": self.delete,
            "get": self.get,
            "count": self.count,
        }
        return [
            *(
                Route(f"{PATH}/{name}", self._route(handle), methods=["POST"])
                for name, handle in posts.items()
            ),
            Route(f"{PATH}/stats", self._route(self.stats), methods=["GET"]),
            *ExportRoute(self._front, self._service).all(),
        ]

    def _route(
        self, handle: Callable[[HttpRequest, bytes, float], Awaitable[dict[str, Any]]]
    ) -> Callable[[HttpRequest], Awaitable[Response]]:
        """Return an endpoint that checks a request, reads its body, and responds with JSON."""

        async def endpoint(http: HttpRequest) -> Response:
            front = self._front
            headers: dict[bytes, bytes] = dict(http.scope["headers"])
            front.check(headers)
            deadline = front.deadline(headers)
            body = await read_body(headers, http.receive, front.limits.body_bytes, deadline)
            try:
                found = await handle(http, body, deadline)
            except InvalidInput as error:
                front.metrics.refused("invalid")
                raise refusal(error) from error
            id_ = request_id(headers)
            return Response(
                orjson.dumps(found, option=orjson.OPT_SERIALIZE_NUMPY),
                headers={"x-request-id": id_},
                media_type="application/json",
            )

        return endpoint

    async def search(self, http: HttpRequest, body: bytes, deadline: float) -> dict[str, Any]:
        """Return the nearest records of each vector."""
        params = self._service.params
        wanted = bodies.parse(bodies.SearchBody, body)
        queries, query = bodies.search(wanted, self._service.settings, params.results, params.max_rows)
        command = Search(self._front.new_id(), queries, query)
        hits: Hits = await self._compute(http, command, deadline)
        results = [_results(hits, item) for item in range(len(hits.ids))]
        if wanted.query is not None:
            return {"results": results[0], "scanned": hits.scanned}
        return {"results": results, "scanned": hits.scanned}

    async def upsert(self, _: HttpRequest, body: bytes, deadline: float) -> dict[str, Any]:
        """Insert or replace records. The response comes when they are durable."""
        wanted = bodies.parse(bodies.UpsertBody, body)
        rows = bodies.upsert(wanted, self._service.settings, self._service.params.max_rows)
        return {"upserted": await self._write(lambda: self._service.writes.upsert(rows), deadline)}

    async def delete(self, _: HttpRequest, body: bytes, deadline: float) -> dict[str, Any]:
        """Delete records by their ids or by a filter. The response comes when that is durable."""
        wanted = bodies.parse(bodies.DeleteBody, body)
        if (wanted.ids is None) == (wanted.filter is None):
            raise InvalidInput("ids", "give either `ids` or `filter`")
        settings = self._service.settings
        if wanted.ids is not None:
            ids = bodies.ids_of(wanted.ids, settings, self._service.params.max_rows)
            return {"deleted": await self._write(lambda: self._service.writes.delete(ids), deadline)}
        where = wanted.filter or {}
        parse_filter(where, settings.fields)
        return {"deleted": await self._write(lambda: self._service.writes.delete_where(where), deadline)}

    async def get(self, http: HttpRequest, body: bytes, deadline: float) -> dict[str, Any]:
        """Return records by their ids, null for those that are not there."""
        wanted = bodies.parse(bodies.GetBody, body)
        ids = bodies.get(wanted, self._service.settings, self._service.params.max_rows)
        command = Fetch(self._front.new_id(), ids, wanted.include_vectors)
        found: list[Stored | None] = await self._compute(http, command, deadline)
        return {"records": [None if one is None else _record(one, wanted) for one in found]}

    async def count(self, http: HttpRequest, body: bytes, deadline: float) -> dict[str, Any]:
        """Return the number of records, or of those that fulfil a filter."""
        wanted = bodies.parse(bodies.CountBody, body)
        if wanted.filter is not None:
            parse_filter(wanted.filter, self._service.settings.fields)
        return {"count": await self._compute(http, Count(self._front.new_id(), wanted.filter), deadline)}

    async def stats(self, _: HttpRequest, __: bytes, ___: float) -> dict[str, Any]:
        """Return the settings and the size of the index."""
        facts = self._service.latest_facts()
        return {
            "settings": self._service.settings.as_json(),
            "records": sum(one.records for one in facts),
            "shards": [_facts(one) for one in facts],
        }

    async def _compute(self, http: HttpRequest, command: Command, deadline: float) -> Any:
        """Let the compute thread run a command. Return its result."""
        front = self._front
        with front.request(dict(http.scope["headers"]), http.receive) as request:
            front.submit(request, [VectorWork(command, deadline, request.push)])
            return (await outputs_of(request))["answer"]

    async def _write(self, write: Callable[[], Awaitable[int]], deadline: float) -> int:
        """Return the number of changed records when a write is durable."""
        self._writes += 1
        self.written.clear()
        try:
            async with asyncio.timeout_at(deadline):
                return await write()
        except TimeoutError:
            raise RequestError(
                504,
                "the request's deadline has passed: perhaps the write is done; it is safe to send it again",
                code="deadline_exceeded",
            ) from None
        except WritesFull:
            self._front.metrics.refused("queue_full")
            raise queue_full(self._service.params.write_queue, RETRY_SECONDS) from None
        except WriteRefused as error:
            raise RequestError(507, str(error), code="index_full") from error
        except WriterEnded as error:
            raise not_ready(str(error)) from error
        finally:
            self._writes -= 1
            if not self._writes:
                self.written.set()


def _results(hits: Hits, item: int) -> list[dict[str, Any]]:
    """Return the results of a query."""
    found: list[dict[str, Any]] = [
        {"id": id_, "distance": distance}
        for id_, distance in zip(hits.ids[item], hits.distances[item].tolist(), strict=True)
    ]
    if hits.records is not None:
        for one, record in zip(found, hits.records[item], strict=True):
            one["metadata"] = record
    if hits.vectors is not None:
        for one, vector in zip(found, hits.vectors[item], strict=True):
            one["vector"] = np.ascontiguousarray(vector)
    return found


def _record(one: Stored, wanted: bodies.GetBody) -> dict[str, Any]:
    found: dict[str, Any] = {"id": one.id}
    if wanted.include_metadata:
        found["metadata"] = one.record
    if wanted.include_vectors:
        found["vector"] = np.ascontiguousarray(one.vector)
    return found


def _facts(one: Facts) -> dict[str, Any]:
    recall = one.recall
    return {
        "records": one.records,
        "segments": one.segments,
        "sequence": one.sequence,
        "nprobe": one.nprobe,
        "candidates": one.candidates,
        "bytes": dict(one.bytes),
        "recall": None
        if recall is None
        else {"mean": recall.mean, "low": recall.low, "high": recall.high, "queries": recall.queries},
    }
