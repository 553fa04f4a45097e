"""The pods of the bench's namespace, kept up to date by one watch."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import aiohttp

from e2e.bench.rig.api import Api, ApiError, Object
from e2e.bench.rig.jobs import PODS

_RETRY_SECONDS = 0.2
ENDED = ("Succeeded", "Failed")


class PodFeed:
    """All pods by name. `listeners` are called after each change."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.pods: dict[str, Object] = {}
        self.changes = 0
        """Number of changes so far."""
        self.listeners: list[Callable[[], None]] = []
        self.changed = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            with contextlib.suppress(ApiError, aiohttp.ClientError, TimeoutError, OSError):
                listed = await self._api.get(PODS)
                self.pods = {pod["metadata"]["name"]: pod for pod in listed["items"] or ()}
                self._notify()
                async for kind, pod in self._api.watch(PODS, listed["metadata"]["resourceVersion"]):
                    if kind == "DELETED":
                        self.pods.pop(pod["metadata"]["name"], None)
                    else:
                        self.pods[pod["metadata"]["name"]] = pod
                    self._notify()
            await asyncio.sleep(_RETRY_SECONDS)

    def _notify(self) -> None:
        self.changes += 1
        for listener in self.listeners:
            listener()
        self.changed.set()


def holds_node(pod: Object) -> bool:
    """Return True if the pod takes room on a node."""
    return bool(pod["spec"].get("nodeName")) and (pod.get("status") or {}).get("phase") not in ENDED
