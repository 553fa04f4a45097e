"""A CheckpointStore through the whole operator, with the agents played by the test."""

from __future__ import annotations

import base64
import secrets
from typing import Any

import pytest

from convoy_agents.wire import hub_pb2 as wire

from .conftest import FakeAgent, Installation, eventually, running
from .test_operator import JOBS

STORES = "/apis/convoy.dev/v1alpha1/checkpointstores"
MERGE = "application/merge-patch+json"


def keys(**data: str) -> dict[str, Any]:
    return {"data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}}


async def test_a_store_becomes_ready_its_keys_are_renewed_and_jobs_hear_of_it(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("convoy_controllers.checkpointstore.plan.RECHECK_SECONDS", 1.0)
    monkeypatch.setattr("convoy_controllers.checkpointstore.plan.FRESH_SECONDS", 1.0)
    name = f"s-{secrets.token_hex(4)}"
    namespace = installation.plane.namespace()
    secret = f"/api/v1/namespaces/{installation.namespace}/secrets"

    async def ready() -> tuple[str, str]:
        found = await installation.call("GET", f"{STORES}/{name}")
        conditions = (found.get("status") or {}).get("conditions") or [{"status": "", "reason": ""}]
        return conditions[0]["status"], conditions[0]["reason"]

    async def is_ready(status: str, reason: str) -> bool:
        return await ready() == (status, reason)

    async def reason_of_job() -> str:
        found = await installation.call("GET", f"{JOBS.format(namespace)}/j")
        return str((found.get("status") or {}).get("reason", ""))

    async def job_says(reason: str) -> bool:
        return await reason_of_job() == reason

    job = {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "j"},
        "spec": {
            "roles": [
                {
                    "name": "w",
                    "replicas": 1,
                    "template": {"spec": {"containers": [{"name": "w", "image": "i", "command": ["x"]}]}},
                }
            ],
            "checkpoint": {"tiers": {"local": {}, "remote": {"store": name}}},
        },
    }
    body = {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "CheckpointStore",
        "metadata": {"name": name},
        "spec": {
            "s3": {"bucket": "checkpoints", "credentialsSecret": name},
            "allowedNamespaces": ["elsewhere"],
        },
    }
    async with running(installation, monkeypatch) as operator:
        await installation.call("POST", JOBS.format(namespace), job)
        await eventually(lambda: job_says("UnknownStore"), what="the job waits for its store")
        await installation.call("POST", STORES, body)
        await eventually(lambda: is_ready("False", "SecretNotFound"), what="no Secret")
        await eventually(lambda: job_says("StoreNotAllowed"), what="the job is not allowed")
        await installation.call("POST", secret, {"metadata": {"name": name}, **keys(accessKey="a")})
        await eventually(lambda: is_ready("False", "SecretIncomplete"), what="a key is missing")
        whole = keys(accessKey="a", secretKey="b")
        await installation.call("PATCH", f"{secret}/{name}", whole, content_type=MERGE)
        await eventually(lambda: is_ready("False", "NotProbed"), what="nobody to ask")

        node = f"{namespace}-n"
        await installation.node(node)
        agent = FakeAgent(installation, operator.hub, node)
        await agent.enrol()
        await agent.dial()
        asked = await eventually(lambda: agent.last("store"), what="the agent is asked")
        assert (asked.name, asked.access_key, asked.secret_key, asked.probe) == (name, "a", "b", True)

        async def answer(told: wire.Store, **more: Any) -> None:
            report = {"reached": True, "conditional": True, "checksums": True, "message": "works", **more}
            await agent.send(store=wire.StoreReport(name=name, version=told.version, **report))

        await answer(asked, conditional=False)
        await eventually(lambda: is_ready("False", "NoConditionalWrites"), what="no conditional writes")

        renewed = keys(accessKey="a", secretKey="c")
        await installation.call("PATCH", f"{secret}/{name}", renewed, content_type=MERGE)
        await eventually(lambda: agent.last("store").secret_key == "c", what="the new key is sent")
        assert agent.last("store").version != asked.version
        await answer(asked)
        await answer(agent.last("store"))
        await eventually(lambda: is_ready("True", "Probed"), what="the store is ready")
        assert agent.last("store").conditional
        status = (await installation.call("GET", f"{STORES}/{name}"))["status"]
        assert status["capabilities"] == {"conditionalWrites": True, "checksums": True}
        assert status["probedBy"] == node

        allowed = {"spec": {"allowedNamespaces": [namespace]}}
        await installation.call("PATCH", f"{STORES}/{name}", allowed, content_type=MERGE)

        async def goes_on() -> bool:
            return await reason_of_job() not in ("UnknownStore", "StoreNotAllowed")

        await eventually(goes_on, what="the job goes on by itself")
        await agent.hang_up()
        await installation.call("DELETE", f"{STORES}/{name}")
