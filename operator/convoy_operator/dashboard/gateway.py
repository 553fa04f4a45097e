"""The dashboard's own requests to the API server: probes, Events, logs and reviews. Reflectors send the
lists and watches.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import aiohttp

from convoy_controllers.resources import (
    GUARD_POLICIES,
    PODS,
    SUBJECT_ACCESS_REVIEWS,
    TOKEN_REVIEWS,
    Resource,
)
from convoy_crds.shown import error_line
from convoy_crds.terms import DEFAULT_POLICY
from convoy_operator import errors
from convoy_operator.client import CONNECT_SECONDS, KubernetesGateway, Request, _error
from convoy_operator.dashboard.auth.identity import Identity
from convoy_operator.dashboard.core.timeline import newest
from convoy_operator.gateway import Object

MAX_EVENTS = 100
"""Maximum number of Events that are kept of one object: the newest ones."""
FOLLOW_SECONDS = 1800.0
"""Seconds after which the dashboard stops following a log."""


class DashboardGateway(KubernetesGateway):
    """A KubernetesGateway that also reads Events and logs and requests reviews. Its creator must close it."""

    _pool: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections that read logs."""
        if self._pool is not None:
            await self._pool.close()

    async def probe(self) -> None:
        """Send one cheap request and return when the API server answers.

        The request bypasses the rate limit and is not retried, so the probe measures only the API server.
        Raises errors.ApiError for any error response, and if there is no response.
        """
        path = GUARD_POLICIES.path(None, DEFAULT_POLICY)
        await self._once("get", GUARD_POLICIES, path, None, {}, "application/json")

    async def events(self, namespace: str, uid: str) -> list[Object]:
        """Return the newest Events of an object, at most `MAX_EVENTS`."""
        return newest(await self.events_of(namespace, uid), MAX_EVENTS)

    async def log(
        self, namespace: str, pod: str, container: str, *, lines: int, follow: bool
    ) -> AsyncGenerator[str, None]:
        """Yield the last `lines` lines of a container's log as pieces of text. With `follow`, also yield
        all later text.

        Raises errors.ApiError if the request fails or the connection breaks.
        """
        params = {"container": container, "tailLines": str(lines), "timestamps": "false"}
        params |= {"follow": "true"} if follow else {}
        await self._throttle()
        seconds = self._settings.request_seconds
        deadlines = aiohttp.ClientTimeout(
            total=FOLLOW_SECONDS + seconds if follow else seconds, connect=CONNECT_SECONDS
        )
        if self._pool is None:
            # Use a separate connection pool: followed logs stay open for long, and must not use up the
            # connections that the watches need.
            self._pool = self._client.rest_client._create_pool_manager()
        path = PODS.path(namespace, pod, "log")
        decoder = getincrementaldecoder("utf-8")("replace")
        try:
            request = Request("GET", path, params)
            async with await self._send(request, deadlines, pool=self._pool) as response:
                self._count("log", PODS, response.status)
                if response.status != 200:
                    raise await _error(response)
                async for piece in response.content.iter_chunked(16_384):
                    yield decoder.decode(piece)
                yield decoder.decode(b"", final=True)
        except (aiohttp.ClientError, TimeoutError, OSError) as fault:
            raise errors.Unavailable(0, f"cannot read the log of pod {pod}: {error_line(fault)}") from fault

    async def review_token(self, token: str) -> Object:
        """Request a TokenReview of the token and return its `status`."""
        return await self._review(TOKEN_REVIEWS, {"token": token})

    async def review_access(self, identity: Identity, wanted: Mapping[str, str]) -> Object:
        """Request a SubjectAccessReview and return its `status`. `wanted` holds the resourceAttributes."""
        spec = {
            "user": identity.user,
            "groups": list(identity.groups),
            "uid": identity.uid,
            "extra": {key: list(values) for key, values in identity.extra},
            "resourceAttributes": dict(wanted),
        }
        return await self._review(SUBJECT_ACCESS_REVIEWS, spec)

    async def _review(self, resource: Resource, spec: Mapping[str, Any]) -> Object:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        created = await self.create(resource, None, body)
        return dict(created.get("status") or {})
