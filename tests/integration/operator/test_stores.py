"""Tests of a CheckpointStore in the complete operator. The tests act as the agents."""

from __future__ import annotations

import base64
import secrets
from typing import Any

import pytest

from convoy_agents.wire import hub_pb2 as wire

from .conftest import FakeAgent, Installation, dialled, eventually, running
from .test_operator import JOBS

STORES = "/apis/convoy.dev/v1alpha1/checkpointstores"
MERGE = "application/merge-patch+json"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the operator read Secrets every second."""
    for name in ("RECHECK_SECONDS", "FRESH_SECONDS"):
        monkeypatch.setattr(f"convoy_controllers.checkpointstore.plan.{name}", 1.0)


class Case:
    """One store with its Secret, and a job in a separate namespace that uses the store."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.call = installation.call
        self.name = f"s-{secrets.token_hex(4)}"
        self.namespace = installation.plane.namespace()
        self.secrets = f"/api/v1/namespaces/{installation.namespace}/secrets"
        self.jobs = JOBS.format(self.namespace)

    async def create(self, *allowed: str, **place: Any) -> None:
        """Create the store for the `allowed` namespaces. It is a bucket unless `place` is given."""
        place = place or {"s3": {"bucket": "checkpoints", "credentialsSecret": self.name}}
        body = {
            "apiVersion": "convoy.dev/v1alpha1",
            "kind": "CheckpointStore",
            "metadata": {"name": self.name},
            "spec": {**place, "allowedNamespaces": list(allowed)},
        }
        await self.call("POST", STORES, body)

    async def allow(self, *allowed: str) -> None:
        change = {"spec": {"allowedNamespaces": list(allowed)}}
        await self.call("PATCH", f"{STORES}/{self.name}", change, content_type=MERGE)

    async def keys(self, create: bool = False, **data: str) -> None:
        body = {"data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}}
        if create:
            await self.call("POST", self.secrets, {"metadata": {"name": self.name}, **body})
        else:
            await self.call("PATCH", f"{self.secrets}/{self.name}", body, content_type=MERGE)

    async def job(self) -> None:
        container = {"name": "w", "image": "i", "command": ["x"]}
        role = {"name": "w", "replicas": 1, "template": {"spec": {"containers": [container]}}}
        tiers = {"local": {}, "remote": {"store": self.name}}
        body = {
            "apiVersion": "convoy.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": "j"},
            "spec": {"roles": [role], "checkpoint": {"tiers": tiers}},
        }
        await self.call("POST", self.jobs, body)

    async def expect_reason(self, reason: str) -> None:
        """Wait until the store has this reason."""

        async def found() -> bool:
            conditions = (await self.status()).get("conditions") or [{"reason": ""}]
            return conditions[0]["reason"] == reason

        await eventually(found, what=f"store says {reason}")

    async def expect_job_reason(self, *reasons: str) -> None:
        """Wait until the job has one of these reasons."""

        async def found() -> bool:
            status = (await self.call("GET", f"{self.jobs}/j")).get("status") or {}
            return status.get("reason") in reasons

        await eventually(found, what=f"job says {reasons}")

    async def status(self) -> dict[str, Any]:
        return (await self.call("GET", f"{STORES}/{self.name}")).get("status") or {}


async def test_a_job_waits_for_its_store_and_then_continues(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(installation)
    async with running(installation, monkeypatch):
        await case.job()
        await case.expect_job_reason("UnknownStore")
        await case.create("elsewhere")
        await case.expect_job_reason("StoreNotAllowed")
        await case.expect_reason("SecretNotFound")
        await case.keys(create=True, accessKey="a")
        await case.expect_reason("SecretIncomplete")
        await case.keys(accessKey="a", secretKey="b")
        await case.expect_reason("NotProbed")
        await case.allow(case.namespace)
        await case.expect_job_reason("WaitingForAgent", "WaitingForPods", "StartingPods", "Unschedulable")


async def test_an_agent_probes_a_store_and_probes_again_when_its_keys_change(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(installation)
    async with dialled(installation, monkeypatch) as (_, agent):
        await case.keys(create=True, accessKey="a", secretKey="b")
        await case.create("*")
        request = await eventually(lambda: agent.last("store"), what="the agent receives the request")
        assert (request.access_key, request.secret_key, request.probe) == ("a", "b", True)

        async def report(version: str, conditional: bool) -> None:
            report = wire.StoreReport(
                name=case.name, version=version, reached=True, conditional=conditional, checksums=True
            )
            await agent.send(store=report)

        await report(request.version, conditional=False)
        await case.expect_reason("NoConditionalWrites")
        await case.keys(accessKey="a", secretKey="c")
        await eventually(lambda: agent.last("store").secret_key == "c", what="the new key is sent")
        renewed = agent.last("store").version
        assert renewed != request.version
        await report(request.version, conditional=True)
        await report(renewed, conditional=True)
        await case.expect_reason("Probed")
        await eventually(lambda: agent.last("store").conditional, what="the agent may commit there")
        status = await case.status()
        assert status["capabilities"] == {"conditionalWrites": True, "checksums": True}
        assert status["probedBy"] == agent.node


async def test_an_unmounted_claim_is_probed_when_an_agent_starts(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(installation)
    node = f"{case.namespace}-n"
    await installation.node(node)
    async with running(installation, monkeypatch) as operator:

        async def connected_agent() -> FakeAgent:
            agent = FakeAgent(installation, operator.server, node)
            await agent.enrol()
            await agent.dial()
            return agent

        agent = await connected_agent()
        await case.create("*", volume={"claimName": "disk", "path": "team"})
        request = await eventually(lambda: agent.last("store"), what="the agent receives the request")
        assert (request.volume.claim, request.volume.path, request.probe) == ("disk", "team", True)
        assert not request.access_key
        report_key = {"name": case.name, "version": request.version}
        await agent.send(store=wire.StoreReport(**report_key, unmounted=True))
        await case.expect_reason("ClaimNotMounted")
        await agent.hang_up()
        agent = await connected_agent()
        await eventually(lambda: agent.last("store"), what="the agent is requested to probe when it connects")
        await agent.send(store=wire.StoreReport(**report_key, reached=True, conditional=True))
        await case.expect_reason("Probed")
        await agent.hang_up()
