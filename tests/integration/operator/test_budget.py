"""Tests of the number of the operator's writes, and of its behaviour with unusable objects."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from convoy_controllers.resources import TRAINING_JOBS
from convoy_operator.app import Operator
from convoy_operator.client import KubernetesGateway

from .conftest import FakeAgent, Installation, eventually, running
from .test_operator import JOBS, Kubelet, job


def writes(operator: Operator) -> dict[str, int]:
    """Return the number of successful writes by verb and resource. Renewals of the Lease are not counted."""
    found = {}
    for metric in operator.metrics.api_requests.collect():
        for sample in metric.samples:
            verb, resource, code = (sample.labels.get(name) for name in ("verb", "resource", "code"))
            if (
                sample.name.endswith("_total")
                and verb not in ("get", "list", "watch")
                and code in ("200", "201")
            ):
                found[f"{verb} {resource}"] = int(sample.value)
    return found


async def at_rest(operator: Operator, window: float = 3.0, deadline: float = 30.0) -> dict[str, int]:
    """Wait until the operator has written nothing for `window` seconds. Return the writes so far."""
    end = asyncio.get_running_loop().time() + deadline
    while True:
        seen = writes(operator)
        await asyncio.sleep(window)
        if writes(operator) == seen:
            return seen
        assert asyncio.get_running_loop().time() < end, "the operator keeps writing although nothing happens"


async def test_one_status_write_per_job_one_create_per_pod_and_none_at_rest(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, gateway: KubernetesGateway
) -> None:
    namespace = installation.plane.namespace()
    async with running(installation, monkeypatch) as operator:
        before = await at_rest(operator)  # includes writes for objects of other tests
        await asyncio.gather(*(gateway.create(TRAINING_JOBS, namespace, job(f"j{n}", 3)) for n in range(20)))

        def settled() -> bool:
            stored = [item for item in operator.cache.jobs if item.namespace == namespace and item.status]
            pods = [item for item in operator.cache.pods if item.namespace == namespace]
            return len(stored) == 20 and len(pods) == 60 and operator.queue.depth == 0

        await eventually(settled)
        await eventually(operator.recorder._outbox.empty)
        after = await at_rest(operator)
        made = {
            name: count - before.get(name, 0) for name, count in after.items() if count != before.get(name)
        }
        assert made["create pods"] == 60
        assert made["patch_status trainingjobs"] <= 20 * 2
        # Dry runs are not writes, because the API server stores nothing. All jobs have the same template, so
        # one dry run would be enough, but reconciles at the same time may each send one.
        assert made.pop("dry_run pods") < 20
        assert set(made) <= {"create pods", "patch_status trainingjobs", "create events"}


async def test_missing_engines_and_rejected_pods_are_reported(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = installation.plane.namespace()
    path = JOBS.format(namespace)
    unknown = job("unknown")
    unknown["spec"]["engine"] = {"name": "nonesuch"}
    refused = job("refused")
    refused["spec"]["roles"][0]["template"]["spec"]["restartPolicy"] = "Never"
    refused["spec"]["roles"][0]["template"]["spec"]["hostname"] = "Not_A_Host!"

    async def message(name: str) -> str:
        return ((await installation.call("GET", f"{path}/{name}")).get("status") or {}).get("message", "")

    async with running(installation, monkeypatch) as operator:
        await installation.call("POST", path, unknown)
        await installation.call("POST", path, refused)

        async def messages() -> Any:
            return "nonesuch" in await message("unknown") and "Not_A_Host!" in await message("refused")

        await eventually(messages, what="both statuses report the fault")
        rejected = operator.metrics.api_requests.labels("create", "pods", "422")._value.get()
        assert rejected <= 12, "no hot loop"

        async def reported() -> bool:
            events = (await installation.call("GET", f"/api/v1/namespaces/{namespace}/events"))["items"]
            return {"unknown", "refused"} <= {event["involvedObject"]["name"] for event in events}

        await eventually(reported, what="events")


async def test_a_job_with_the_name_of_a_deleted_job_starts_without_its_state(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = installation.plane.namespace()
    path = JOBS.format(namespace)
    kubelet = Kubelet(installation, namespace)
    async with running(installation, monkeypatch) as operator:
        first = await installation.call("POST", path, job("again", 1))

        async def owners() -> set[str]:
            return {pod["metadata"]["ownerReferences"][0]["uid"] for pod in await kubelet.list()}

        async def owned(uid: str) -> bool:
            return await owners() == {uid}

        await eventually(lambda: owned(first["metadata"]["uid"]))
        await installation.call("DELETE", f"{path}/again")
        await eventually(lambda: operator.cache.jobs.get(namespace, "again") is None)
        second = await installation.call("POST", path, job("again", 1))

        async def refused() -> bool:
            found = await installation.call("GET", f"{path}/again")
            return "PodNameTaken" in str(found.get("status"))

        await eventually(refused, what="the old job's pod does not count as the new job's")
        assert await owned(first["metadata"]["uid"])
        # Delete the pods here, because this control plane has no garbage collector.
        await installation.call("DELETE", f"{kubelet.pods}/again-worker-0?gracePeriodSeconds=0")
        await eventually(lambda: owned(second["metadata"]["uid"]))


async def test_a_new_leader_waits_for_the_agents_of_running_jobs(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = installation.plane.namespace()
    path = JOBS.format(namespace)
    kubelet = Kubelet(installation, namespace)
    node = f"{namespace}-n"
    await installation.node(node)
    async with running(installation, monkeypatch):
        await installation.call("POST", path, job("survivor", 1))
        (pod,) = await eventually(lambda: _pods(kubelet, 1))
        await kubelet.start(pod, node, "10.1.0.1")

    async def status() -> dict[str, Any]:
        return (await installation.call("GET", f"{path}/survivor"))["status"]

    before = await status()
    async with running(installation, monkeypatch, agent_grace_seconds=20.0) as operator:
        await asyncio.sleep(2)
        assert await status() == before, "no decision without the agent"
        agent = FakeAgent(installation, operator.server, node)
        await agent.enrol()
        from convoy_agents.wire import hub_pb2 as wire

        await agent.dial(
            wire.PodReport(pod_uid=pod["metadata"]["uid"], launcher_connected=True, incarnation=7)
        )
        request = await eventually(
            lambda: agent.last("pick_port"), 10, "it decides as soon as the agent has come"
        )
        assert request.incarnation == 8, "never below an incarnation that an agent has seen"
        await agent.hang_up()


async def _pods(kubelet: Kubelet, count: int) -> list[dict[str, Any]]:
    pods = await kubelet.list()
    return pods if len(pods) == count else []
