"""What the dashboard asks of the API server besides what every watch does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp

from convoy_operator import errors
from convoy_operator.client import KubernetesGateway, _error
from convoy_operator.gateway import Object
from convoy_operator.resources import EVENTS, PODS, SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Resource

MOST_EVENTS = 100
TAIL_LINES = 500
MOST_LOG = 1_048_576
"""Bytes of a log that are read at once."""
FOLLOW_SECONDS = 1800.0
"""After which following a log ends."""


class DashboardGateway(KubernetesGateway):
    """KubernetesGateway that also reads the Events of one object, and logs."""

    async def events(self, namespace: str, uid: str) -> list[Object]:
        """The Events of one object, `MOST_EVENTS` at most."""
        params = {"fieldSelector": f"involvedObject.uid={uid}", "limit": str(MOST_EVENTS)}
        answer = await self._call("list", EVENTS, EVENTS.path(namespace), params=params)
        return list(answer.get("items") or ())

    async def log(self, namespace: str, pod: str, container: str, *, follow: bool) -> AsyncIterator[str]:
        """The last lines of a container's log as text in pieces; with `follow` also what comes after."""
        params = {"container": container, "tailLines": str(TAIL_LINES), "timestamps": "false"}
        params |= {"follow": "true"} if follow else {"limitBytes": str(MOST_LOG)}
        await self._throttle()
        deadlines = aiohttp.ClientTimeout(
            total=FOLLOW_SECONDS if follow else self._settings.request_seconds, sock_connect=10.0
        )
        path = PODS.path(namespace, pod, "log")
        try:
            async with await self._send("GET", path, params=params, deadlines=deadlines) as response:
                self._count("log", PODS, response.status)
                if response.status != 200:
                    raise await _error(response)
                async for piece in response.content.iter_chunked(16_384):
                    yield piece.decode(errors="replace")
        except TimeoutError as fault:
            if not follow:
                raise errors.Unavailable(0, f"log of {pod}: {fault!r}") from fault
        except (aiohttp.ClientError, OSError) as fault:
            raise errors.Unavailable(0, f"log of {pod}: {fault!r}") from fault

    async def review_token(self, token: str) -> Object:
        """`status` of a TokenReview."""
        return await self._review(TOKEN_REVIEWS, {"token": token})

    async def review_access(self, user: str, groups: tuple[str, ...], wanted: Mapping[str, str]) -> Object:
        """`status` of a SubjectAccessReview. `wanted`: resourceAttributes."""
        spec = {"user": user, "groups": list(groups), "resourceAttributes": dict(wanted)}
        return await self._review(SUBJECT_ACCESS_REVIEWS, spec)

    async def _review(self, resource: Resource, spec: Mapping[str, Any]) -> Object:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        answer = await self.create(resource, None, body)
        return dict(answer.get("status") or {})
