"""Lets whole gangs run for a fixed time. A fake kubelet starts pods, but no program runs in them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Callable

from e2e.bench.placement.gangs.feed import PodFeed, holds_node
from e2e.bench.placement.gangs.partial import PartialTimes
from e2e.bench.rig.api import Api, ApiError, Object
from e2e.bench.rig.jobs import PODS

RUN_SECONDS = 3.0
"""Seconds that the ranks of a job work, from the moment at which all of them run."""
_POLL_SECONDS = 0.1


class Work:
    """Ends the pods of a gang with success when all of them have run for RUN_SECONDS at once."""

    def __init__(
        self,
        api: Api,
        feed: PodFeed,
        size: int,
        gang_of: Callable[[Object], str],
        runs: Callable[[Object], bool],
    ) -> None:
        """`gang_of`: (pod) -> name of its job. `runs`: (pod) -> True if its ranks have started."""
        self._api = api
        self._feed = feed
        self._size = size
        self._gang_of = gang_of
        self._runs = runs
        self._since: dict[str, float] = {}
        self.partial = PartialTimes(size)
        feed.listeners.append(self._record)

    def detach(self) -> None:
        """Stop recording."""
        self._feed.listeners.remove(self._record)

    def _record(self) -> None:
        holding: dict[str, set[str]] = defaultdict(set)
        for pod in self._feed.pods.values():
            if holds_node(pod):
                holding[self._gang_of(pod)].add(pod["metadata"]["uid"])
        self.partial.update(holding, time.monotonic())

    async def run(self) -> None:
        """End gangs until cancelled."""
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            self._record()
            gangs: dict[str, list[Object]] = defaultdict(list)
            for pod in self._feed.pods.values():
                if self._working(pod):
                    gangs[self._gang_of(pod)].append(pod)
            now = time.monotonic()
            whole = {name: pods for name, pods in gangs.items() if len(pods) == self._size}
            self._since = {name: self._since.get(name, now) for name in whole}
            done = [name for name, since in self._since.items() if now - since >= RUN_SECONDS]
            await asyncio.gather(*(self._end(pod) for name in done for pod in whole[name]))

    def _working(self, pod: Object) -> bool:
        return (
            (pod.get("status") or {}).get("phase") == "Running"
            and not pod["metadata"].get("deletionTimestamp")
            and self._runs(pod)
        )

    async def _end(self, pod: Object) -> None:
        """Patch a pod's status as a kubelet does when the main container ends with code 0."""
        names = [one["name"] for one in pod["spec"]["containers"]]
        ended = {"terminated": {"exitCode": 0, "reason": "Completed"}}
        containers = [
            {"name": name, "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": ended}
            for name in names
        ]
        status = {"phase": "Succeeded", "containerStatuses": containers}
        with contextlib.suppress(ApiError):
            await self._api.patch(f"{PODS}/{pod['metadata']['name']}/status", {"status": status})
