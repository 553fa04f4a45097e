"""A scheduler that starts gangs by one of the rules in rules.py, against the real API server."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from convoy_controllers.placement.gangs import coscheduling, volcano
from e2e.bench.placement.gangs import apis
from e2e.bench.placement.gangs.feed import PodFeed, holds_node
from e2e.bench.placement.gangs.rules import PERMIT_SECONDS, Coscheduling, Group, View, Volcano, Waiting
from e2e.bench.rig.api import MERGE, Api, ApiError, Object
from e2e.bench.rig.jobs import PODS, SPACE


@dataclass(frozen=True)
class Flavour:
    """The objects of a gang scheduler."""

    scheduler: str
    group_path: str
    """Path of the PodGroups."""
    gang_of: Callable[[Object], str]
    """(pod) -> name of its PodGroup; empty without one."""
    rule: Callable[[], Coscheduling | Volcano]
    cycle_seconds: float
    writes_phase: bool
    """True if the scheduler itself writes the phase of a PodGroup."""


def _path(group: str, version: str) -> str:
    return f"/apis/{group}/{version}/namespaces/{SPACE}/podgroups"


COSCHEDULING = Flavour(
    coscheduling.SCHEDULER,
    _path(apis.COSCHEDULING_GROUP, apis.COSCHEDULING_VERSION),
    lambda pod: str((pod["metadata"].get("labels") or {}).get("scheduling.x-k8s.io/pod-group", "")),
    Coscheduling,
    0.1,
    writes_phase=False,
)
VOLCANO = Flavour(
    volcano.SCHEDULER,
    _path(apis.VOLCANO_GROUP, apis.VOLCANO_VERSION),
    lambda pod: str((pod["metadata"].get("annotations") or {}).get("scheduling.k8s.io/group-name", "")),
    Volcano,
    1.0,
    writes_phase=True,
)


class StandIn:
    """The scheduler. `longest_hold` is the longest time that a pod waited with a node held for it."""

    def __init__(self, api: Api, feed: PodFeed, room: Mapping[str, int], flavour: Flavour) -> None:
        """`room`: processors of each node."""
        self._api = api
        self._feed = feed
        self._room = room
        self._flavour = flavour
        self._rule = flavour.rule()
        self._judged: set[str] = set()
        self.longest_hold = 0.0

    async def run(self) -> None:
        """Schedule until cancelled."""
        while True:
            await self._cycle()
            await asyncio.sleep(self._flavour.cycle_seconds)

    async def _cycle(self) -> None:
        waiting = self._waiting()
        if not waiting:
            return
        now = time.monotonic()
        view = View(self._free(), waiting, self._bound(), await self._groups())
        chosen = self._rule.cycle(view, now)
        for _, _, _, since in self._rule.held.values():
            self.longest_hold = max(self.longest_hold, now - since)
        gangs = {one.name: one.gang for one in waiting}
        await asyncio.gather(*(self._bind(name, node) for name, node in chosen.items()))
        for gang in sorted({gangs[name] for name in chosen}):
            await self._write_phase(gang)
        for one in waiting:
            if one.name not in chosen and one.name not in self._judged:
                await self._reject(one)

    def _waiting(self) -> list[Waiting]:
        return [
            Waiting(name, self._flavour.gang_of(pod), cpus_of(pod))
            for name, pod in sorted(self._feed.pods.items())
            if pod["spec"].get("schedulerName") == self._flavour.scheduler
            and not pod["spec"].get("nodeName")
            and not pod["metadata"].get("deletionTimestamp")
        ]

    def _free(self) -> dict[str, int]:
        free = dict(self._room)
        for pod in self._feed.pods.values():
            if holds_node(pod):
                free[pod["spec"]["nodeName"]] -= cpus_of(pod)
        return free

    def _bound(self) -> Counter[str]:
        return Counter(self._flavour.gang_of(pod) for pod in self._feed.pods.values() if holds_node(pod))

    async def _groups(self) -> dict[str, Group]:
        found = {}
        for raw in (await self._api.get(self._flavour.group_path))["items"]:
            metadata, spec = raw["metadata"], raw["spec"]
            found[metadata["name"]] = Group(
                metadata["name"],
                metadata["creationTimestamp"],
                spec.get("minMember", 1),
                int((spec.get("minResources") or {}).get("cpu", 0)),
                float(spec.get("scheduleTimeoutSeconds") or PERMIT_SECONDS),
            )
        return found

    async def _bind(self, name: str, node: str) -> None:
        """Bind a pod. A pod that was deleted meanwhile is no error."""
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        with contextlib.suppress(ApiError):
            await self._api.call("POST", f"{PODS}/{name}/binding", body)

    async def _write_phase(self, gang: str) -> None:
        if self._flavour.writes_phase:
            with contextlib.suppress(ApiError):
                body = {"status": {"phase": "Running"}}
                path = f"{self._flavour.group_path}/{gang}"
                await self._api.call("PATCH", path, body, content_type=MERGE)

    async def _reject(self, pod: Waiting) -> None:
        """Report that the pod could not be scheduled, as every scheduler does."""
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "the gang does not fit into the free room",
        }
        self._judged.add(pod.name)
        with contextlib.suppress(ApiError):
            await self._api.patch(f"{PODS}/{pod.name}/status", {"status": {"conditions": [condition]}})


def cpus_of(pod: Object) -> int:
    """Return the processors that a pod requests."""
    containers = pod["spec"]["containers"]
    requests = [(one.get("resources") or {}).get("requests") or {} for one in containers]
    return sum(int(one.get("cpu", 0)) for one in requests)
