"""Tests of Independent roles in the complete operator. The tests act as the kubelet and the agents."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_agents.wire import hub_pb2 as wire
from convoy_crds.terms import LABEL_AGENT_READY, LABEL_MEMBERSHIP

from .conftest import FakeAgent, Installation, eventually, running
from .test_operator import JOBS, Kubelet, job, ranks

PORT = 29500


class Pod:
    """A pod on a node of its own. It acts as the pod's launcher and agent."""

    def __init__(self, agent: FakeAgent, body: dict[str, Any]) -> None:
        self.agent = agent
        self.name: str = body["metadata"]["name"]
        self.uid: str = body["metadata"]["uid"]

    async def send(self, **facts: Any) -> None:
        await self.agent.send(pod=wire.PodReport(pod_uid=self.uid, launcher_connected=True, **facts))

    async def last(self, kind: str) -> Any:
        """Wait for a command of this kind to this pod."""

        async def found() -> Any:
            body = self.agent.last(kind)
            return body if body is not None and body.pod_uid == self.uid else None

        return await eventually(found, what=f"{kind} for {self.name}")

    async def pick_port(self) -> int:
        """Pick the port of the next incarnation, and return the incarnation."""
        number = int((await self.last("pick_port")).incarnation)
        await self.send(master_port=PORT, port_incarnation=number)
        return number


class Scene:
    """A job of one worker and one Independent rollout pod, and two nodes with agents."""

    def __init__(self, installation: Installation, namespace: str) -> None:
        self.installation = installation
        self.namespace = namespace
        self.kubelet = Kubelet(installation, namespace)
        self.agents: list[FakeAgent] = []

    async def open(self, server: Any) -> None:
        """Add the nodes, and create the job."""
        for node in (f"{self.namespace}-a", f"{self.namespace}-b"):
            await self.installation.node(node)
            agent = FakeAgent(self.installation, server, node)
            await agent.enrol()
            await agent.dial()
            self.agents.append(agent)
            await eventually(lambda node=node: self.labelled(node), what="node labelled")
        body = job("train", 1)
        template = body["spec"]["roles"][0]["template"]
        outside = {"name": "rollout", "replicas": 1, "membership": "Independent", "template": template}
        body["spec"]["roles"].append(outside)
        await self.installation.call("POST", JOBS.format(self.namespace), body)

    async def status(self) -> dict[str, Any]:
        found = await self.installation.call("GET", f"{JOBS.format(self.namespace)}/train")
        return found.get("status") or {}

    async def independent(self, counts: str) -> bool:
        return bool((await self.status()).get("independent") == counts)

    async def labelled(self, node: str) -> bool:
        found = await self.installation.call("GET", f"/api/v1/nodes/{node}")
        return bool(found["metadata"].get("labels", {}).get(LABEL_AGENT_READY) == "true")

    async def start(self, name: str, agent: FakeAgent, ip: str, other_than: str = "") -> Pod:
        """Wait until the operator has created a pod, and start it on the agent's node."""

        async def created() -> Any:
            for one in await self.kubelet.list():
                if one["metadata"]["name"] == name and one["metadata"]["uid"] != other_than:
                    return one
            return None

        made = await eventually(created, what=f"pod {name} created")
        await self.kubelet.start(made, agent.node, ip)
        pod = Pod(agent, made)
        await pod.send()
        return pod

    async def run(self, pod: Pod, incarnation: int, **facts: Any) -> None:
        """Report that the rank of a pod runs."""
        own = {"incarnation": incarnation, "master_port": PORT, "port_incarnation": incarnation, **facts}
        await pod.send(**own, ranks=ranks("RUNNING", 0))


async def test_a_lost_independent_pod_changes_nothing_in_the_group(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(installation, installation.plane.namespace())
    async with running(installation, monkeypatch) as operator:
        await scene.open(operator.server)
        worker = await scene.start("train-worker-0", scene.agents[0], "10.1.0.1")
        assert [one["metadata"]["name"] for one in await scene.kubelet.list()] == [worker.name]
        group = await worker.pick_port()
        assert (await worker.last("assignment")).world_size == 1
        await scene.run(worker, group)

        rollout = await scene.start("train-rollout-0", scene.agents[1], "10.1.0.2")
        told = await rollout.last("group_members")
        assert (told.incarnation, [one.address for one in told.members]) == (group, ["10.1.0.1"])
        own = await rollout.pick_port()
        given = await rollout.last("assignment")
        assert (given.world_size, given.master_addr, given.incarnation) == (1, "10.1.0.2", own)
        assert given.job_uid.endswith(".rollout.0") and given.key
        assert given.key != (await worker.last("assignment")).key
        await scene.run(rollout, own, members_incarnation=group)
        await eventually(lambda: scene.independent("1/1"), what="rollout runs")
        before = await scene.status()

        path = f"{scene.kubelet.pods}/{rollout.name}"
        made = await installation.call("GET", path)
        assert made["metadata"]["labels"][LABEL_MEMBERSHIP] == "Independent"
        await installation.call("DELETE", path, {"gracePeriodSeconds": 0})
        again = await scene.start(rollout.name, scene.agents[1], "10.1.0.3", other_than=rollout.uid)
        assert await again.pick_port() > own
        after = await scene.status()
        for name in ("phase", "incarnation", "restarts", "ready"):
            assert after[name] == before[name], name
        role = next(one for one in after["roles"] if one["name"] == "rollout")
        assert role["independent"] == {"completed": 0, "givenUp": 0, "restarts": 0, "preemptions": 1}

        await worker.send(incarnation=group, ranks=ranks("EXITED", 0))
        await eventually(lambda: _leaves(installation, path), what="rollout drained")
        assert (await scene.status())["phase"] == "Succeeded"
        for agent in scene.agents:
            await agent.hang_up()


async def _leaves(installation: Installation, path: str) -> bool:
    """Return True if the pod is being deleted. No kubelet removes it."""
    return "deletionTimestamp" in (await installation.call("GET", path))["metadata"]
