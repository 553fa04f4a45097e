"""Tests of a ServingJob that follows the checkpoints of a TrainingJob, in the complete operator."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from convoy_agents.wire import hub_pb2 as wire

from .conftest import FakeAgent, Installation, eventually
from .test_operator import JOBS as TRAINING_JOBS
from .test_serving import JOBS, MERGE, Job, server, serving
from .test_stores import STORES


class Trained:
    """A TrainingJob that another controller manages, so that only the test writes its status."""

    def __init__(self, installation: Installation, namespace: str, store: str) -> None:
        self.installation, self.store = installation, store
        self.jobs = TRAINING_JOBS.format(namespace)

    async def create(self) -> None:
        """Create the store and the job."""
        body: dict[str, Any] = {
            "apiVersion": "convoy.dev/v1alpha1",
            "kind": "CheckpointStore",
            "metadata": {"name": self.store},
            "spec": {"volume": {"claimName": "disk"}, "allowedNamespaces": ["*"]},
        }
        await self.installation.call("POST", STORES, body)
        container = {"name": "w", "image": "i", "command": ["x"]}
        role = {"name": "w", "replicas": 1, "template": {"spec": {"containers": [container]}}}
        tiers = {"local": {}, "remote": {"store": self.store}}
        body = {
            "apiVersion": "convoy.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": "train"},
            "spec": {"roles": [role], "checkpoint": {"tiers": tiers}, "managedBy": "example.com/other"},
        }
        await self.installation.call("POST", self.jobs, body)

    async def save(self, step: int) -> None:
        """Report that a generation is in the store."""
        mark = {"incarnation": 1, "step": step, "time": "2026-01-01T00:00:00Z"}
        checkpoint = {**mark, "tier": "remote", "watermarks": {"remote": mark}}
        status = {"status": {"checkpoint": checkpoint}}
        await self.installation.call("PATCH", f"{self.jobs}/train/status", status, content_type=MERGE)


async def probed(agent: FakeAgent) -> None:
    """Report that the store can be used, as the agent that probes it does."""

    async def probe_ordered() -> bool:
        return any(one.HasField("store") and one.store.probe for one in agent.received)

    await eventually(probe_ordered, what="the agent must probe the store")
    store = next(one.store for one in agent.received if one.HasField("store"))
    report = wire.StoreReport(name=store.name, version=store.version)
    report.reached = report.conditional = report.checksums = True
    await agent.send(store=report)


async def test_replicas_follow_the_checkpoints_and_a_damaged_one_displaces_nothing(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace, store = installation.plane.namespace(), f"s-{secrets.token_hex(4)}"
    job, trained = Job(installation, namespace, "llm"), Trained(installation, namespace, store)
    async with serving(installation, monkeypatch, namespace) as node:
        await trained.create()
        checkpoint = {"job": "train", "store": store, "follow": True, "minInterval": "1s"}
        await installation.call(
            "POST", JOBS.format(namespace), server("llm", model={"checkpoint": checkpoint})
        )

        async def reason(wanted: str) -> bool:
            return bool((await job.status()).get("reason") == wanted)

        await probed(node.agent)
        await eventually(lambda: reason("ModelMissing"), what="the model is missing")
        assert await node.all() == []
        await trained.save(10)
        await eventually(lambda: job.complete("2/2"), what="two replicas serve")
        assert node.handled[:2] == ["deliver_model"] * 2, "ranks start after the delivery"
        names = {one.store.name for one in node.agent.received if one.HasField("store")}
        assert names == {store}, "the agent has the store before the order"
        (volume,) = (one for one in (await node.all())[0]["spec"]["volumes"] if one["name"] == "convoy-model")
        assert volume["csi"]["volumeAttributes"] == {"convoy.dev/content": "model"}

        node.damaged.add(20)
        await trained.save(20)
        await eventually(lambda: reason("ModelDigestMismatch"), 60, what="the delivery has failed")
        status = await job.status()
        conditions = {one["type"]: one for one in status["conditions"]}
        assert conditions["Progressing"]["reason"] == "RevisionFailed"
        assert node.agent.node in conditions["ModelReady"]["message"]
        assert "a chunk is damaged" in conditions["ModelReady"]["message"]
        assert status["model"]["step"] == 20 and len(await node.ready()) == 2

        await trained.save(30)

        async def repaired() -> bool:
            assert len(await node.ready()) >= 2
            found = await job.status()
            return await job.complete("2/2") and found["model"]["step"] == 30

        await eventually(repaired, 90, what="a newer checkpoint repairs the rollout")
