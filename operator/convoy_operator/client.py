"""The operator's client of the API server.

The client uses `kubernetes.aio` for configuration, authentication and the HTTP session. It encodes bodies
with orjson, because the generated models would double the time of a request. Every request has a deadline.
A request that the server throttles or does not answer is retried a few times while the retry budget lasts.
"""

from __future__ import annotations

import asyncio
import email.utils
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
from kubernetes.aio.client import ApiClient

from convoy_controllers.resources import EVENTS, PODS, Resource
from convoy_crds.shown import error_line
from convoy_crds.terms import FIELD_MANAGER, OPERATOR
from convoy_operator import errors
from convoy_operator.decoding import loads
from convoy_operator.gateway import Object, Page
from convoy_operator.limits import FairQueue, RetryBudget, TokenBucket, backoff
from convoy_operator.metrics import Metrics
from convoy_operator.settings import Settings

MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_RETRIED = (errors.TooManyRequests, errors.Unavailable)
_LONGEST_WAIT = 30.0
EVENT_PAGES = 10
"""Maximum number of pages to read when listing the Events about one object."""
CONNECT_SECONDS = 10.0
"""Timeout in seconds for getting a connection: an idle one from the pool, or a new one."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request to the API server."""

    method: str
    path: str
    params: Mapping[str, str]
    data: bytes | None = None
    content_type: str = "application/json"


class KubernetesGateway:
    """ApiGateway over an `ApiClient` of kubernetes.aio. The caller closes the client."""

    def __init__(self, client: ApiClient, settings: Settings, metrics: Metrics) -> None:
        self._client = client
        self._settings = settings
        self._metrics = metrics
        self._limiter = FairQueue(TokenBucket(settings.qps, settings.burst))
        self._retries = RetryBudget()
        self._timeout = aiohttp.ClientTimeout(total=settings.request_seconds, connect=CONNECT_SECONDS)

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        """See `ApiGateway.get`."""
        return await self._call("get", resource, resource.path(namespace, name))

    async def served(self, group: str, version: str) -> frozenset[str]:
        """See `ApiGateway.served`."""
        any_resource = Resource(group, version, "", "")
        try:
            found = await self._call("get", any_resource, f"/apis/{group}/{version}")
        except errors.NotFound:
            return frozenset()
        return frozenset(one["name"] for one in found.get("resources") or ())

    async def events_of(self, namespace: str, uid: str) -> list[Object]:
        """Return the Events about one object, from at most EVENT_PAGES pages. The API server sorts Events
        by name, so the order says nothing about their times.
        """
        params = {"fieldSelector": f"involvedObject.uid={uid}", "limit": str(self._settings.list_page)}
        found: list[Object] = []
        for _ in range(EVENT_PAGES):
            answer = await self._call("list", EVENTS, EVENTS.path(namespace), params=params)
            found += answer.get("items") or ()
            following = (answer.get("metadata") or {}).get("continue")
            if not following:
                break
            params["continue"] = following
        return found

    async def list(self, resource: Resource, selector: str = "") -> tuple[list[Object], str]:
        """See `ApiGateway.list`."""
        items: list[Object] = []
        version = ""
        async for page, of in self.pages(resource, selector):
            items += page
            version = of
        return items, version

    async def pages(self, resource: Resource, selector: str = "") -> AsyncIterator[Page]:
        """See `ApiGateway.pages`."""
        params = {"limit": str(self._settings.list_page)}
        if selector:
            params["labelSelector"] = selector
        while True:
            page = await self._call("list", resource, resource.path(), params=params)
            metadata = page["metadata"]
            yield page["items"] or [], metadata["resourceVersion"]
            if not metadata.get("continue"):
                return
            params["continue"] = metadata["continue"]

    async def watch(
        self,
        resource: Resource,
        version: str,
        selector: str = "",
        opened: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[tuple[str, Object]]:
        """See `ApiGateway.watch`. `opened` is called when the server accepts the watch, before any event."""
        settings = self._settings
        length = settings.watch_seconds * random.uniform(0.8, 1.0)  # noqa: S311 - jitter, not a secret
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(max(1, int(length))),
        }
        if selector:
            params["labelSelector"] = selector
        timeout = aiohttp.ClientTimeout(
            total=settings.watch_seconds + settings.request_seconds,
            connect=CONNECT_SECONDS,
            sock_read=settings.watch_silence_seconds,
        )
        await self._throttle()
        try:
            async with await self._send(Request("GET", resource.path(), params), timeout) as response:
                self._count("watch", resource, response.status)
                if response.status != 200:
                    raise await _error(response)
                opened()
                async for line in _lines(response.content):
                    event = loads(line)
                    if event["type"] == "ERROR":
                        status = event["object"]
                        raise errors.from_response(
                            status.get("code") or 0, status.get("message", ""), status.get("reason", "")
                        )
                    yield event["type"], event["object"]
        except (aiohttp.ClientError, TimeoutError, OSError, orjson.JSONDecodeError) as fault:
            self._count("watch", resource, 0)
            raise errors.Unavailable(0, f"watch of {resource.plural}: {error_line(fault)}") from fault

    async def create(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> Object:
        """See `ApiGateway.create`."""
        # A retry is safe because names are deterministic: if only the response was lost, the retry fails with
        # AlreadyExists.
        return await self._call(
            "create", resource, resource.path(namespace), body=body, params={"fieldManager": FIELD_MANAGER}
        )

    async def dry_run(self, resource: Resource, namespace: str | None, body: Mapping[str, Any]) -> None:
        """See `ApiGateway.dry_run`."""
        params = {"dryRun": "All", "fieldValidation": "Strict", "fieldManager": FIELD_MANAGER}
        await self._call("dry_run", resource, resource.path(namespace), body=body, params=params)

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str,
        grace_seconds: int | None = None,
    ) -> Object:
        """See `ApiGateway.delete`."""
        body: Object = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        return await self._call("delete", resource, resource.path(namespace, name), body=body)

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, patch: Mapping[str, Any]
    ) -> Object:
        """See `ApiGateway.patch`."""
        return await self._call(
            "patch",
            resource,
            resource.path(namespace, name),
            body=patch,
            params={"fieldManager": FIELD_MANAGER},
            content_type=MERGE_PATCH,
        )

    async def patch_status(
        self, resource: Resource, namespace: str | None, name: str, version: str, patch: Mapping[str, Any]
    ) -> Object:
        """See `ApiGateway.patch_status`."""
        return await self._call(
            "patch_status",
            resource,
            resource.path(namespace, name, "status"),
            body={"metadata": {"resourceVersion": version}, "status": patch},
            params={"fieldManager": FIELD_MANAGER},
            content_type=MERGE_PATCH,
        )

    async def evict(self, namespace: str, name: str, *, uid: str) -> None:
        """See `ApiGateway.evict`."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        await self._call("evict", PODS, PODS.path(namespace, name, "eviction"), body=body)

    async def apply(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: Mapping[str, Any],
        *,
        subresource: str | None = None,
        force: bool = True,
    ) -> Object:
        """See `ApiGateway.apply`."""
        return await self._call(
            "apply",
            resource,
            resource.path(namespace, name, subresource),
            body={"apiVersion": resource.api_version, "kind": resource.kind, **body},
            params={"fieldManager": FIELD_MANAGER, "force": str(force).lower()},
            content_type=APPLY_PATCH,
        )

    _METHODS = {  # noqa: RUF012 - never written to
        "get": "GET",
        "list": "GET",
        "create": "POST",
        "dry_run": "POST",
        "evict": "POST",
        "delete": "DELETE",
        "patch": "PATCH",
        "patch_status": "PATCH",
        "apply": "PATCH",
    }

    async def _call(
        self,
        verb: str,
        resource: Resource,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """Send one request. If the API server throttles it or is unavailable, retry it while the retry
        budget lasts.
        """
        data = orjson.dumps(body) if body is not None else None
        self._retries.request()
        for attempt in range(self._settings.request_tries):
            await self._throttle()
            try:
                return await self._once(verb, resource, path, data, params or {}, content_type)
            except _RETRIED as fault:
                last = attempt + 1 == self._settings.request_tries
                if last or not self._retries.spend():
                    raise
                wait = backoff(attempt, 0.2, 5.0)
                if fault.retry_after is not None:
                    wait += min(fault.retry_after, _LONGEST_WAIT)
                await asyncio.sleep(wait)
        raise AssertionError("unreachable: the last try returns or raises")

    async def _once(
        self,
        verb: str,
        resource: Resource,
        path: str,
        data: bytes | None,
        params: Mapping[str, str],
        content_type: str,
    ) -> Object:
        began = time.monotonic()
        code = 0
        try:
            request = Request(self._METHODS[verb], path, params, data, content_type)
            async with await self._send(request, self._timeout) as response:
                code = response.status
                if code >= 400:
                    raise await _error(response)
                answer: Object = loads(await response.read())
                return answer
        except (aiohttp.ClientError, TimeoutError, OSError, orjson.JSONDecodeError) as fault:
            code = 0
            raise errors.Unavailable(0, f"{verb} {path}: {error_line(fault)}") from fault
        finally:
            self._count(verb, resource, code)
            self._metrics.api_seconds.labels(verb).observe(time.monotonic() - began)

    async def _send(
        self,
        request: Request,
        deadlines: aiohttp.ClientTimeout,
        *,
        pool: aiohttp.ClientSession | None = None,
    ) -> aiohttp.ClientResponse:
        """Send a request. `pool` replaces the default connection pool, which all other requests share."""
        rest = self._client.rest_client
        if rest.pool_manager is None:
            rest.pool_manager = rest._create_pool_manager()
        configuration = self._client.configuration
        headers = {"Content-Type": request.content_type, "Accept": "application/json", "User-Agent": OPERATOR}
        for setting in (await configuration.auth_settings()).values():
            if setting["value"]:
                headers[setting["key"]] = setting["value"]
        extra: dict[str, Any] = {}
        if configuration.tls_server_name:
            extra["server_hostname"] = configuration.tls_server_name
        session: aiohttp.ClientSession = pool or rest.pool_manager
        return await session.request(
            request.method,
            configuration.host + request.path,
            params=request.params,
            data=request.data,
            headers=headers,
            timeout=deadlines,
            proxy=rest.proxy,
            **extra,
        )

    async def _throttle(self) -> None:
        waited = await self._limiter.acquire()
        if waited:
            self._metrics.api_wait_seconds.inc(waited)

    def _count(self, verb: str, resource: Resource, code: int) -> None:
        self._metrics.api_requests.labels(verb, resource.plural, str(code)).inc()


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield lines of any length: aiohttp's own iterator rejects lines longer than its buffer."""
    rest = b""
    async for chunk in stream.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line


async def _error(response: aiohttp.ClientResponse) -> errors.ApiError:
    """Return the typed error of a response. The body may be any text, because a proxy may have sent the
    response instead of the API server.
    """
    body = await response.read()
    causes: tuple[tuple[str, str], ...] = ()
    try:
        status = orjson.loads(body)
        message, reason = str(status.get("message", "")), str(status.get("reason", ""))
        listed = (status.get("details") or {}).get("causes") or ()
        causes = tuple((str(one.get("field", "")), str(one.get("message", ""))) for one in listed)
    except (orjson.JSONDecodeError, AttributeError):
        message, reason = body[:200].decode(errors="replace"), ""
    wait = _retry_after(response.headers.get("Retry-After"))
    return errors.from_response(response.status, message, reason, wait, causes)


def _retry_after(text: str | None) -> float | None:
    """Return the seconds to wait from a Retry-After header, which holds seconds or a date. Return None if
    it is missing or invalid.
    """
    if not text:
        return None
    if text.isdigit():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None
