"""Tests of tiers by default on a real API server, with the complete operator. The tests act as the kubelet
and the agents.
"""

from __future__ import annotations

from typing import Any

import pytest

from convoy_agents.wire import hub_pb2 as wire
from convoy_crds.terms import LABEL_AGENT_READY
from convoy_operator.app import Operator
from convoy_operator.hub.ca import KEY_BYTES

from .conftest import FakeAgent, Installation, eventually, running
from .test_operator import JOBS, Kubelet, job, ranks

MIB = 2**20
LIMIT = 512 * MIB


class Jobs:
    """Two nodes with agents, and one job that a test creates."""

    def __init__(self, installation: Installation, operator: Operator) -> None:
        self.installation, self.operator = installation, operator
        self.namespace = installation.plane.namespace()
        self.path = JOBS.format(self.namespace)
        self.kubelet = Kubelet(installation, self.namespace)
        self.agents: list[FakeAgent] = []
        self.uids: list[str] = []

    async def create(self, **checkpoint: Any) -> list[dict[str, str]]:
        """Create the job. Return the environment variables of its pods."""
        body = job("train")
        body["spec"]["checkpoint"] = checkpoint
        await self.installation.call("POST", self.path, body)

        async def made() -> list[dict[str, Any]]:
            pods = await self.kubelet.list()
            return pods if len(pods) == 2 else []

        pods = await eventually(made, what="pods created")
        self.uids = [pod["metadata"]["uid"] for pod in pods]
        found = [pod["spec"]["containers"][0]["env"] for pod in pods]
        return [{one["name"]: one.get("value", "") for one in several} for several in found]

    async def form(self) -> list[wire.Assignment]:
        """Start the pods on two nodes. Return the assignments of the incarnation."""
        for position, name in enumerate("ab"):
            node = f"{self.namespace}-{name}"
            await self.installation.node(node)
            agent = FakeAgent(self.installation, self.operator.server, node)
            await agent.enrol()
            await agent.dial()
            await eventually(lambda node=node: self.labelled(node), what="node labelled")
            self.agents.append(agent)
            await self.kubelet.start((await self.kubelet.list())[position], node, f"10.1.0.{position + 1}")
            await agent.send(pod=wire.PodReport(pod_uid=self.uids[position], launcher_connected=True))
        await eventually(lambda: self.agents[0].last("pick_port"), what="port requested")
        await self.agents[0].send(
            pod=wire.PodReport(
                pod_uid=self.uids[0], launcher_connected=True, master_port=29500, port_incarnation=1
            )
        )
        given = (lambda agent=agent: agent.last("assignment") for agent in self.agents)
        return [await eventually(one, what="assignment") for one in given]

    async def labelled(self, node: str) -> bool:
        found = await self.installation.call("GET", f"/api/v1/nodes/{node}")
        return LABEL_AGENT_READY in found["metadata"].get("labels", {})

    async def report(self, wanted: int, step: int = 0, opened: bool = True, copies: int = 1) -> None:
        """Report running ranks and their use of memory."""
        for position, agent in enumerate(self.agents):
            progress = wire.Progress(step=step, time_unix_ms=1_000 + step) if step else None
            use = wire.CheckpointMemory(opened=opened, wanted_bytes=wanted, limit_bytes=LIMIT, copies=copies)
            await agent.send(
                pod=wire.PodReport(
                    pod_uid=self.uids[position],
                    launcher_connected=True,
                    incarnation=1,
                    master_port=29500,
                    port_incarnation=1,
                    ranks=ranks("RUNNING", position, progress=progress),
                    memory=use,
                )
            )

    async def status(self) -> dict[str, Any]:
        return (await self.installation.call("GET", f"{self.path}/train")).get("status") or {}

    async def reason(self) -> str:
        found = (await self.status()).get("conditions", [])
        return next((one["reason"] for one in found if one["type"] == "Checkpointing"), "")

    async def events(self) -> list[str]:
        path = f"/api/v1/namespaces/{self.namespace}/events"
        return [one["reason"] for one in (await self.installation.call("GET", path))["items"]]

    async def close(self) -> None:
        for agent in self.agents:
            await agent.hang_up()


async def test_a_job_without_tiers_gets_memory(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"checkpoints_default": "Memory", "checkpoints_most": "256Mi"}
    async with running(installation, monkeypatch, **settings) as operator:
        it = Jobs(installation, operator)
        for values in await it.create():
            assert values["CONVOY_CHECKPOINT_TIERS"] == "local,peer"
            assert values["CONVOY_CHECKPOINT_BY_DEFAULT"] == "true"
        first, second = await it.form()
        assert first.key == second.key and len(first.key) == KEY_BYTES, "ranks can authenticate each other"
        for one, other in ((first, 1), (second, 0)):
            assert (one.memory.by_default, one.memory.copies, one.memory.limit) == (True, 1, 256 * MIB)
            assert [host.node for host in one.memory.hosts] == [it.agents[other].node]
        await it.report(100 * MIB, step=1)

        async def settled() -> bool:
            return await it.reason() == "DefaultMemory"

        await eventually(settled, what="the condition says what the job has")
        tiers = (await it.status())["checkpoint"]["tiers"]
        assert tiers == {"source": "Default", "memory": LIMIT, "copies": 1}
        stored = await installation.call("GET", f"{it.path}/train")
        assert (
            "tiers" not in stored["spec"].get("checkpoint", {}) or not stored["spec"]["checkpoint"]["tiers"]
        )

        # Two buffers and a copy do not fit any more: the agents are told to make no copies.
        await it.report(300 * MIB, step=2)

        async def without_copies() -> bool:
            given = [agent.last("assignment") for agent in it.agents]
            return all(one is not None and one.memory.copies == 0 for one in given)

        await eventually(without_copies, what="assignments without copies")
        await it.report(300 * MIB, step=3, copies=0)

        async def local_only() -> bool:
            return await it.reason() == "DefaultNoCopies"

        await eventually(local_only, what="the condition says that there are no copies")
        tiers = (await it.status())["checkpoint"]["tiers"]
        assert tiers == {"source": "Default", "memory": LIMIT, "copies": 0}

        async def posted() -> bool:
            found = await it.events()
            return {"DefaultMemory", "DefaultNoCopies"} <= set(found)

        await eventually(posted, what="events")
        assert (await it.events()).count("DefaultNoCopies") == 1
        await it.close()


async def test_a_program_that_never_saves_is_named(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(installation, monkeypatch, checkpoints_default="Memory") as operator:
        it = Jobs(installation, operator)
        await it.create()
        await it.form()
        await it.report(0, step=5, opened=False)

        async def named() -> bool:
            return await it.reason() == "ProgramNeverSaves"

        await eventually(named, what="the condition names the program")
        await it.close()


@pytest.mark.parametrize(
    ("chart", "checkpoint", "given"),
    [("Memory", {"default": "None"}, False), ("None", {}, False), ("None", {"default": "Memory"}, True)],
)
async def test_chart_and_job_may_turn_it_off(
    installation: Installation,
    monkeypatch: pytest.MonkeyPatch,
    chart: str,
    checkpoint: dict[str, Any],
    given: bool,
) -> None:
    async with running(installation, monkeypatch, checkpoints_default=chart) as operator:
        it = Jobs(installation, operator)
        for values in await it.create(**checkpoint):
            assert ("CONVOY_CHECKPOINT_TIERS" in values) is given
        assert [one.HasField("memory") for one in await it.form()] == [given] * 2
        await it.close()
