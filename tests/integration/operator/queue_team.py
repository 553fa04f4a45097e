"""A namespace with a Kueue queue, its jobs, and the pods and agents of these jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.integration.conftest import ControlPlane

from convoy_agents.wire import hub_pb2 as wire
from convoy_crds.terms import LABEL_AGENT_READY

from .conftest import FakeAgent, eventually, installed, running
from .kueue_process import Administrator
from .test_operator import JOBS, Kubelet, job, ranks

MERGE = "application/merge-patch+json"
PORT = 29500
RACK = "example.com/rack"


class Team:
    """A namespace with a queue, and the pods and agents of its jobs."""

    def __init__(self, plane: ControlPlane, cpus: int, flavor: str = "plain") -> None:
        self.plane = plane
        self.installation = installed(plane)
        self.namespace = plane.namespace("team")
        self.administrator = Administrator(plane)
        self.cluster_queue = self.administrator.queue(self.namespace, cpus, flavor=flavor)
        self.kubelet = Kubelet(self.installation, self.namespace)
        self.agent: FakeAgent | None = None
        """The agent of the node on which `start` runs pods."""
        self.agents: list[FakeAgent] = []
        self.addresses = 0

    async def call(self, method: str, path: str, body: object = None, **more: Any) -> dict[str, Any]:
        return await self.installation.call(method, path, body, **more)

    async def submit(self, name: str, replicas: int, **more: Any) -> None:
        """Create a job whose pods need one processor each."""
        body = queued_job(name, replicas, **more)
        await self.call("POST", JOBS.format(self.namespace), body)

    async def patch(self, name: str, body: dict[str, Any]) -> None:
        await self.call("PATCH", f"{JOBS.format(self.namespace)}/{name}", body, content_type=MERGE)

    async def status(self, name: str) -> dict[str, Any]:
        return (await self.call("GET", f"{JOBS.format(self.namespace)}/{name}")).get("status") or {}

    async def reason(self, name: str, reason: str, text: str = "") -> dict[str, Any]:
        """Wait until the job reports the reason, with the text in its message. Return its status."""
        seen: dict[str, Any] = {}

        async def reported() -> dict[str, Any]:
            seen.update(await self.status(name))
            return seen if seen.get("reason") == reason and text in seen.get("message", "") else {}

        try:
            return await eventually(reported, 30.0)
        except AssertionError:
            shown = {key: seen.get(key) for key in ("phase", "reason", "message", "placement")}
            raise AssertionError(f"{name} does not report {reason} {text!r}: {shown}") from None

    async def pods(self, name: str, count: int) -> list[dict[str, Any]]:
        """Wait until the job has this many pods. Return them."""

        async def there() -> list[dict[str, Any]] | bool:
            found = [
                one
                for one in await self.kubelet.list()
                if one["metadata"]["labels"]["convoy.dev/job"] == name
            ]
            return (found or True) if len(found) == count else False

        found = await eventually(there, 30.0, what=f"{count} pods of {name}")
        return found if isinstance(found, list) else []

    async def workload(self, name: str) -> dict[str, Any]:
        """Wait until the job has one Workload. Return it."""

        async def one() -> dict[str, Any] | None:
            found = [
                item
                for item in await asyncio.to_thread(self.administrator.workloads, self.namespace)
                if item["metadata"]["ownerReferences"][0]["name"] == name
            ]
            return found[0] if len(found) == 1 else None

        return await eventually(one, 30.0, what=f"the Workload of {name}")

    async def holds(self, name: str, kind: str, status: str, reason: str = "") -> dict[str, Any]:
        """Wait until a condition of the job's Workload has this status. Return the Workload."""

        async def reported() -> dict[str, Any] | None:
            found = await self.workload(name)
            for one in (found.get("status") or {}).get("conditions") or ():
                if (one["type"], one["status"]) == (kind, status) and reason in ("", one["reason"]):
                    return found
            return None

        return await eventually(reported, 30.0, what=f"{kind} of {name} is {status} {reason}")

    async def end(self, name: str) -> None:
        """Act as the kubelet: remove the pods of a job that are being deleted."""

        async def removed() -> bool:
            left = [
                one
                for one in await self.kubelet.list()
                if one["metadata"]["labels"]["convoy.dev/job"] == name
            ]
            for one in left:
                if "deletionTimestamp" in one["metadata"]:
                    path = f"{self.kubelet.pods}/{one['metadata']['name']}"
                    await self.call("DELETE", path, {"gracePeriodSeconds": 0})
            return not left

        await eventually(removed, 30.0, what=f"the pods of {name} are gone")

    async def start(self, server: Any, name: str, pods: list[dict[str, Any]]) -> None:
        """Run the pods of a job on the node of the one agent, until the job is Running."""
        if self.agent is None:
            node = f"{self.namespace}-n"
            await self.installation.node(node)
            self.agent = await self.connect(server, node)
        agent = self.agent
        uids = [one["metadata"]["uid"] for one in pods]
        for one in pods:
            self.addresses += 1
            await self.kubelet.start(one, agent.node, f"10.2.0.{self.addresses}")
            ready = {"type": "Ready", "status": "True"}
            await self.kubelet.status(one["metadata"]["name"], {"conditions": [ready]})
        for uid in uids:
            await agent.send(pod=wire.PodReport(pod_uid=uid, launcher_connected=True))
        asked = await eventually(
            lambda: (found := agent.last("pick_port")) is not None and found.pod_uid == uids[0] and found,
            what="port requested",
        )
        number = int(asked.incarnation)
        for position, uid in enumerate(uids):
            picked = {"master_port": PORT, "port_incarnation": number} if position == 0 else {}
            await agent.send(
                pod=wire.PodReport(
                    pod_uid=uid,
                    launcher_connected=True,
                    incarnation=number,
                    ranks=ranks("RUNNING", position),
                    **picked,
                )
            )

        async def up() -> bool:
            return (await self.status(name)).get("phase") == "Running"

        await eventually(up, 30.0, what=f"{name} runs")

    async def connect(self, server: Any, node: str) -> FakeAgent:
        """Connect the agent of a node, so that pods may run there."""
        agent = FakeAgent(self.installation, server, node)
        await agent.enrol()
        await agent.dial()
        self.agents.append(agent)
        await eventually(lambda: self._labelled(node), what="node labelled")
        return agent

    async def admitted(self, name: str) -> dict[str, Any]:
        """Wait until the status of the job shows that its queue has admitted it. Return the queue's part."""

        async def shown() -> dict[str, Any] | None:
            queue = ((await self.status(name)).get("placement") or {}).get("queue") or {}
            return queue if queue.get("state") == "Admitted" else None

        return await eventually(shown, 30.0, what=f"{name} is shown as admitted")

    async def finish(self, name: str, pods: list[dict[str, Any]]) -> None:
        """End all ranks of a running job with code 0, and its pods too."""
        assert self.agent is not None
        number = (await self.status(name))["incarnation"]
        for position, one in enumerate(pods):
            await self.agent.send(
                pod=wire.PodReport(
                    pod_uid=one["metadata"]["uid"],
                    launcher_connected=True,
                    incarnation=number,
                    ranks=ranks("EXITED", position),
                )
            )

        async def over() -> bool:
            return (await self.status(name)).get("phase") == "Succeeded"

        await eventually(over, 30.0, what=f"{name} has succeeded")
        for one in pods:
            await self.kubelet.status(one["metadata"]["name"], {"phase": "Succeeded"})

    async def _labelled(self, node: str) -> bool:
        found = await self.call("GET", f"/api/v1/nodes/{node}")
        return bool(found["metadata"].get("labels", {}).get(LABEL_AGENT_READY) == "true")


def queued_job(name: str, replicas: int, **more: Any) -> dict[str, Any]:
    body = job(name, replicas)
    labels = {"kueue.x-k8s.io/queue-name": more.pop("queue", "team")}
    body["metadata"]["labels"] = labels | more.pop("labels", {})
    body["metadata"]["annotations"] = more.pop("annotations", {})
    if priority := more.pop("priority", ""):
        body["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = priority
    role = body["spec"]["roles"][0]
    role["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    if least := more.pop("least", 0):
        role["minReplicas"] = least
    body["spec"] |= more
    return body


@asynccontextmanager
async def team(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, cpus: int, flavor: str = "plain"
) -> AsyncIterator[tuple[Team, Any]]:
    """A team and the operator."""
    found = Team(plane, cpus, flavor)
    async with running(found.installation, monkeypatch) as operator:
        yield found, operator.server
        for agent in found.agents:
            await agent.hang_up()


async def placed_node(own: Team, server: Any, name: str, rack: str, cpus: int) -> None:
    """Create a node that Kueue's topology-aware scheduling can use, with a connected agent."""
    labels = {"pool": "placed", RACK: rack, "kubernetes.io/hostname": name}
    status = {
        "allocatable": {"cpu": str(cpus), "memory": "8Gi", "pods": "20"},
        "capacity": {"cpu": str(cpus), "memory": "8Gi", "pods": "20"},
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": {"machineID": f"machine-of-{name}"},
    }
    await own.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "status": status})
    # The API server taints a node at its creation, and no controller removes the taint here.
    await own.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, content_type=MERGE)
    await own.connect(server, name)


def host_of(pod: dict[str, Any]) -> str:
    return str(pod["spec"]["nodeSelector"]["kubernetes.io/hostname"])
