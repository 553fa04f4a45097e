"""What the dashboard asks of the API server besides what every watch does."""

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
from convoy_operator import errors
from convoy_operator.client import CONNECT_SECONDS, KubernetesGateway, Request, _error
from convoy_operator.dashboard.auth.identity import Identity
from convoy_operator.dashboard.core.timeline import newest
from convoy_operator.gateway import Object

MOST_EVENTS = 100
"""Of one object, the newest."""
FOLLOW_SECONDS = 1800.0
"""After which following a log ends."""


class DashboardGateway(KubernetesGateway):
    """KubernetesGateway that also reads the Events of one object, and logs. Who made it closes it."""

    _pool: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Ends all readings of logs."""
        if self._pool is not None:
            await self._pool.close()

    async def probe(self) -> None:
        """Returns when the API server answers; raises errors.ApiError.

        It waits in no line behind other requests, and is tried once: how long it takes is the answer.
        """
        path = GUARD_POLICIES.path(None, "default")
        await self._once("get", GUARD_POLICIES, path, None, {}, "application/json")

    async def events(self, namespace: str, uid: str) -> list[Object]:
        """The newest Events of one object, `MOST_EVENTS` at most."""
        return newest(await self.events_of(namespace, uid), MOST_EVENTS)

    async def log(
        self, namespace: str, pod: str, container: str, *, lines: int, follow: bool
    ) -> AsyncGenerator[str, None]:
        """The last lines of a container's log as text in pieces; with `follow` also what comes after.

        It ends where the log ends; raises errors.ApiError, also for a connection that breaks.
        """
        params = {"container": container, "tailLines": str(lines), "timestamps": "false"}
        params |= {"follow": "true"} if follow else {}
        await self._throttle()
        seconds = self._settings.request_seconds
        deadlines = aiohttp.ClientTimeout(
            total=FOLLOW_SECONDS + seconds if follow else seconds, connect=CONNECT_SECONDS
        )
        if self._pool is None:
            # Logs are followed for long: they must not take the connections that watches need.
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
            raise errors.Unavailable(0, f"log of {pod}: {fault!r}") from fault

    async def review_token(self, token: str) -> Object:
        """`status` of a TokenReview."""
        return await self._review(TOKEN_REVIEWS, {"token": token})

    async def review_access(self, identity: Identity, wanted: Mapping[str, str]) -> Object:
        """`status` of a SubjectAccessReview. `wanted`: resourceAttributes."""
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
