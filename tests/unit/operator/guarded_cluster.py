"""An operator whose guard watches six nodes and one job, with an API server in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.unit.operator.conftest import FakeApi
from tests.unit.operator.reconciling import Operator

from convoy_controllers.nodehealth.observed import Suspicion
from convoy_controllers.nodehealth.pacing import JobPace, Slow
from convoy_controllers.resources import GUARD_POLICIES, HEALTH_SWEEPS, NODE_HEALTHS, NODES, PODS
from convoy_controllers.testing.builders import make_job
from convoy_operator import views

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
FOREIGN = {"key": "example.com/own", "effect": "NoExecute"}
LASTING = {"detection": {"lasting": "1m"}, "drain": {"swapCost": "1m"}, "budgets": {"poolPercent": 50}}


class Cluster(Operator):
    """An operator, the nodes n0 to n5, and a job on n0 and n1 with a saved checkpoint."""

    def __init__(self, api: FakeApi, job: Mapping[str, Any] | None = None, **policy: Any) -> None:
        super().__init__(api)
        self.now = START
        for number in range(6):
            name = f"n{number}"
            labels = {"convoy.dev/agent-ready": "true"}
            body = {
                "metadata": {"name": name, "labels": labels, "creationTimestamp": "2025-12-01T00:00:00Z"},
                "spec": {"taints": [FOREIGN]},
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "nodeInfo": {"machineID": f"hw{number}", "bootID": "b"},
                },
            }
            api.put(NODES, body)
        api.put(GUARD_POLICIES, {"metadata": {"name": "p"}, "spec": {"mode": "Act", **LASTING, **policy}})
        self.job(**(job or {}))
        self.sync()

    def restart(self) -> None:
        """Replace the operator by a new process."""
        now = self.now
        super().__init__(self.api)
        self.now = now

    def job(self, saved: timedelta | None = -MINUTE, action: str = "Swap") -> None:
        raw = make_job(roles=[{"name": "worker", "replicas": 2}]).to_dict()
        raw["spec"]["guard"] = {"action": action}
        raw["status"] = {"incarnation": 1, "internal": {"incarnation": {"membership": "m"}}}
        if saved is not None:
            at = f"{self.now + saved:%Y-%m-%dT%H:%M:%SZ}"
            raw["status"]["checkpoint"] = {"incarnation": 1, "step": 5, "tier": "peer", "time": at}
        self.api._version += 1
        raw["metadata"]["resourceVersion"] = str(self.api._version)
        self.cache.jobs.upsert(views.cached_object(raw))
        for number in range(2):
            pod = {
                "metadata": {
                    "name": f"job-worker-{number}",
                    "uid": f"p{number}",
                    "labels": {"convoy.dev/job": raw["metadata"]["name"]},
                    "ownerReferences": [{"controller": True, "uid": raw["metadata"]["uid"]}],
                },
                "spec": {"nodeName": f"n{number}"},
                "status": {"phase": "Running"},
            }
            if (PODS.plural, "default", f"job-worker-{number}") not in self.api.objects:
                self.api.put(PODS, pod, "default")

    def sync(self) -> None:
        """Copy all objects from the API server to the cache, as the watches would."""
        for (plural, _, _), raw in self.api.objects.items():
            for resource in (NODES, PODS, GUARD_POLICIES, NODE_HEALTHS, HEALTH_SWEEPS):
                if plural == resource.plural:
                    self.cache.upsert(resource, raw)

    def reconcile(self, later: timedelta = timedelta(0)) -> None:
        self.now += later
        self.time += max(1.0, later.total_seconds())
        self.sync()
        asyncio.run(self.reconcile_all("GuardPolicy", "NodeHealth", "Node"))
        self.sync()

    def accuse(self, node: str, ago: timedelta = 5 * MINUTE, loss: float = 130.0) -> None:
        self.hub.held[node] = (
            Suspicion("default/job", self.now - ago, self.now, 1.5, loss, "Compute", gain=0.5, ranks=(0,)),
        )

    def pace_of(self, incarnation: int, seconds: float, *nodes: str, slow: tuple[Slow, ...] = ()) -> None:
        pace = JobPace("u", incarnation, seconds, 0.01, 50, 2, frozenset(nodes), slow)
        self.hub.pace["default/job"] = pace

    def state(self, number: int = 0) -> str:
        return str(self.api.objects[NODE_HEALTHS.plural, "", f"hw{number}"]["status"]["state"])

    def acting(self) -> dict[str, Any]:
        found = self.api.objects[NODE_HEALTHS.plural, "", "hw0"]["status"]["conditions"]
        return next(one for one in found if one["type"] == "Acting")

    def node(self, number: int = 0) -> dict[str, Any]:
        return self.api.objects[NODES.plural, "", f"n{number}"]

    def ours(self, number: int = 0) -> dict[str, str]:
        taints = self.node(number)["spec"]["taints"]
        return {one["key"]: one["effect"] for one in taints if one["key"].startswith("convoy.dev/")}

    def evicted(self) -> list[str]:
        return [name for verb, _, name in self.api.calls if verb == "evict"]
