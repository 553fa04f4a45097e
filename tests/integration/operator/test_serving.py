"""Tests of a ServingJob in the complete operator. The tests act as the kubelet and the agent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.error import HTTPError

import pytest
from e2e import rights

from convoy_agents.wire import hub_pb2 as wire
from convoy_crds.terms import LABEL_REVISION

from .conftest import FakeAgent, Installation, dialled, eventually
from .test_rights import requested

JOBS = "/apis/convoy.dev/v1alpha1/namespaces/{}/servingjobs"
MERGE = "application/merge-patch+json"


def server(name: str, image: str = "own:1", **spec: Any) -> dict[str, Any]:
    """Return a ServingJob with its own image."""
    probe = {"httpGet": {"path": "/healthz", "port": 8080}}
    container = {"name": "s", "image": image, "command": ["serve"], "readinessProbe": probe}
    role = {"name": "worker", "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "convoy.dev/v1alpha1",
        "kind": "ServingJob",
        "metadata": {"name": name},
        "spec": {"replicas": 2, "roles": [role], **spec},
    }


SLICE = "llm-abc12"


def endpoint_slice(service: dict[str, Any], pods: list[dict[str, Any]]) -> dict[str, Any]:
    """Return an EndpointSlice with these pods, as Kubernetes makes it for a Service: with its labels."""
    metadata = service["metadata"]
    reference = {"apiVersion": "v1", "kind": "Service", "name": metadata["name"], "uid": metadata["uid"]}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": SLICE,
            "labels": {**metadata["labels"], "kubernetes.io/service-name": metadata["name"]},
            "ownerReferences": [{**reference, "controller": True, "blockOwnerDeletion": True}],
        },
        "addressType": "IPv4",
        "ports": [],
        "endpoints": [
            {
                "addresses": [pod["status"]["podIP"]],
                "conditions": {"ready": True},
                "targetRef": {
                    "kind": "Pod",
                    "name": pod["metadata"]["name"],
                    "uid": pod["metadata"]["uid"],
                },
            }
            for pod in pods
        ],
    }


class Node:
    """The kubelet and the agent of one node. Pods start at once, and become ready when their ranks run.

    Pods whose image is in `broken` never become ready. Models are delivered at once.
    """

    def __init__(self, installation: Installation, agent: FakeAgent, namespace: str) -> None:
        self.installation, self.agent = installation, agent
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self.broken: set[str] = set()
        self.damaged: set[int] = set()
        """Steps of the checkpoints that cannot be delivered."""
        self.ips: dict[str, str] = {}
        """The IP of each pod, by name; others have the same one."""
        self.handled: list[str] = []
        """Kinds of the handled commands."""
        self._reports: dict[str, wire.PodReport] = {}
        self._handled = 0

    async def run(self) -> None:
        """Act until cancelled."""
        while True:
            for pod in await self.all():
                with contextlib.suppress(HTTPError):
                    await self._act(pod)
            await self._handle_commands()
            await asyncio.sleep(0.1)

    async def all(self) -> list[dict[str, Any]]:
        """Return the pods in the order of their names."""
        found = (await self.installation.call("GET", self.pods))["items"]
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    async def ready(self) -> list[dict[str, Any]]:
        """Return the ready pods that are not being deleted."""
        return [pod for pod in await self.all() if _ready(pod) and "deletionTimestamp" not in pod["metadata"]]

    async def _act(self, pod: dict[str, Any]) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        if "deletionTimestamp" in pod["metadata"]:
            await self.installation.call("DELETE", f"{self.pods}/{name}?gracePeriodSeconds=0")
        elif "nodeName" not in pod["spec"]:
            target = {"kind": "Node", "name": self.agent.node}
            body = {"metadata": {"name": name}, "target": target}
            await self.installation.call("POST", f"{self.pods}/{name}/binding", body)
            await self._status(name, False)
        elif uid not in self._reports:
            self._reports[uid] = wire.PodReport(pod_uid=uid, launcher_connected=True)
            await self.agent.send(pod=self._reports[uid])
        elif self._reports[uid].ranks and not _ready(pod) and _image(pod) not in self.broken:
            await self._status(name, True)

    async def _status(self, name: str, ready: bool) -> None:
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": at}
        ip = self.ips.get(name, "10.1.0.1")
        ips = {"podIP": ip, "podIPs": [{"ip": ip}]}
        body = {"status": {"phase": "Running", "conditions": [condition], **ips}}
        await self.installation.call("PATCH", f"{self.pods}/{name}/status", body, content_type=MERGE)

    async def _handle_commands(self) -> None:
        fresh, self._handled = self.agent.received[self._handled :], len(self.agent.received)
        for message in fresh:
            kind = message.WhichOneof("body")
            if kind not in ("pick_port", "assignment", "deliver_model", "endpoints"):
                continue
            given = getattr(message, kind)
            self.handled.append(str(kind))
            report = self._reports[given.pod_uid]
            if kind == "pick_port":
                report.port_incarnation, report.master_port = given.incarnation, 29500
            elif kind == "deliver_model":
                report.model.CopyFrom(self._delivery(given.source))
            elif kind == "endpoints":
                report.endpoints[:] = given.addresses
            else:
                report.incarnation = given.incarnation
                del report.ranks[:]
                report.ranks.append(wire.RankReport(rank=0, state=wire.RankReport.State.RUNNING))
            await self.agent.send(pod=report)

    def _delivery(self, source: wire.ModelSource) -> wire.ModelReport:
        """Return the state of a delivery: it fails if its step is in `damaged`."""
        if source.step not in self.damaged:
            return wire.ModelReport(source=source, state=wire.ModelReport.READY)
        failure = wire.ModelReport.DIGEST_MISMATCH
        return wire.ModelReport(
            source=source, state=wire.ModelReport.FAILED, failure=failure, message="a chunk is damaged"
        )

    async def end_rank(self, pod: dict[str, Any], code: int) -> None:
        """Report that the rank of a pod exited."""
        report = self._reports[pod["metadata"]["uid"]]
        report.ranks[0].state, report.ranks[0].exit_code = wire.RankReport.State.EXITED, code
        await self.agent.send(pod=report)


def _image(pod: dict[str, Any]) -> str:
    return str(pod["spec"]["containers"][0]["image"])


def _ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


@asynccontextmanager
async def serving(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, namespace: str
) -> AsyncIterator[Node]:
    """Run the operator and one node."""
    async with dialled(installation, monkeypatch) as (_, agent):
        node = Node(installation, agent, namespace)
        task = asyncio.create_task(node.run())
        try:
            yield node
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class Job:
    """One ServingJob, through the API server."""

    def __init__(self, installation: Installation, namespace: str, name: str) -> None:
        self.installation, self.namespace = installation, namespace
        self.path = f"{JOBS.format(namespace)}/{name}"

    async def status(self) -> dict[str, Any]:
        return (await self.installation.call("GET", self.path)).get("status") or {}

    async def patch(self, **spec: Any) -> None:
        await self.installation.call("PATCH", self.path, {"spec": spec}, content_type=MERGE)

    async def complete(self, ready: str) -> bool:
        """Return True if the rollout is complete and READY has this text."""
        found = await self.status()
        return found.get("reason") == "RolloutComplete" and found.get("ready") == ready

    async def objects(self, group: str, plural: str) -> list[dict[str, Any]]:
        """Return the objects of a resource in the job's namespace."""
        found = await self.installation.call("GET", f"{group}/namespaces/{self.namespace}/{plural}")
        return list(found["items"])


async def test_a_job_serves_scales_and_rolls(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = installation.plane.namespace()
    job = Job(installation, namespace, "llm")
    async with serving(installation, monkeypatch, namespace) as node:
        await installation.call("POST", JOBS.format(namespace), server("llm"))
        await eventually(lambda: job.complete("2/2"), what="two replicas serve")
        assert [pod["metadata"]["name"] for pod in await node.all()] == ["llm-worker-0-0", "llm-worker-1-0"]
        (service,) = await job.objects("/api/v1", "services")
        labels = (await node.all())[0]["metadata"]["labels"]
        assert service["spec"]["selector"].items() <= labels.items()
        (budget,) = await job.objects("/apis/policy/v1", "poddisruptionbudgets")
        assert budget["spec"]["minAvailable"] == 1
        (revision,) = await job.objects("/apis/apps/v1", "controllerrevisions")
        assert revision["revision"] == 1
        first = (await job.status())["updateRevision"]

        scale = await installation.call("GET", f"{job.path}/scale")
        assert scale["status"]["replicas"] == 2 and "convoy.dev/index=0" in scale["status"]["selector"]
        scale["spec"]["replicas"] = 3
        await installation.call("PUT", f"{job.path}/scale", scale)
        await eventually(lambda: job.complete("3/3"), what="three replicas serve")

        await job.patch(roles=server("llm", "own:2")["spec"]["roles"])

        async def rolled() -> bool:
            assert len(await node.ready()) >= 3
            found = await job.status()
            return await job.complete("3/3") and found["currentRevision"] != first

        await eventually(rolled, 90, what="all replicas are replaced")
        images = {_image(pod) for pod in await node.ready()}
        assert images == {"own:2"}
        assert len(await job.objects("/apis/apps/v1", "controllerrevisions")) == 2

        await job.patch(rollout={"revision": first})

        async def undone() -> bool:
            found = {pod["metadata"]["labels"][LABEL_REVISION] for pod in await node.all()}
            return found == {first} and await job.complete("3/3")

        await eventually(undone, 90, what="the first revision serves again")


async def test_a_rollout_waits_for_the_endpoint_slices_of_the_service(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = installation.plane.namespace()
    job = Job(installation, namespace, "llm")
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    async with serving(installation, monkeypatch, namespace) as node:
        await installation.call("POST", JOBS.format(namespace), server("llm"))
        await eventually(lambda: job.complete("2/2"), what="two replicas serve")
        old = {pod["metadata"]["uid"] for pod in await node.ready()}
        (service,) = await job.objects("/api/v1", "services")
        await installation.call("POST", slices, endpoint_slice(service, await node.ready()))

        async def noted() -> bool:
            records = (await job.status())["internal"]["groups"]
            return all("listedAt" in one for one in records)

        await eventually(noted, what="the operator knows that the Service lists the replicas")
        await job.patch(roles=server("llm", "own:2")["spec"]["roles"])

        async def waits() -> bool:
            conditions = (await job.status())["conditions"]
            (rolling,) = [one for one in conditions if one["type"] == "Progressing"]
            return "replica worker-2 is ready, but the Service does not list it yet" in rolling["message"]

        await eventually(waits, what="the third replica waits for the Service")
        ready = await node.ready()
        assert len(ready) == 3 and old < {pod["metadata"]["uid"] for pod in ready}
        name = f"{slices}/{SLICE}"
        await installation.call("PUT", name, endpoint_slice(service, ready))

        async def replaced() -> bool:
            return not old <= {pod["metadata"]["uid"] for pod in await node.ready()}

        await eventually(replaced, what="an old replica is deleted")
        await installation.call("DELETE", name)
        await eventually(lambda: job.complete("2/2"), 90, what="the rollout ends")
    found = requested(installation)
    for verb in ("list", "watch"):
        assert rights.Right("convoy-operator", "discovery.k8s.io", "endpointslices", verb, "", "") in found


async def test_a_rank_restarts_in_place_and_a_broken_revision_displaces_nothing(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = installation.plane.namespace()
    job = Job(installation, namespace, "llm")
    async with serving(installation, monkeypatch, namespace) as node:
        node.broken.add("broken")
        body = server("llm", rollout={"progressDeadlineSeconds": 10})
        await installation.call("POST", JOBS.format(namespace), body)
        await eventually(lambda: job.complete("2/2"), what="two replicas serve")
        pods = await node.all()
        before = (await job.status())["internal"]["groups"][0]["incarnation"]
        await node.end_rank(pods[0], 1)

        async def restarted() -> bool:
            found = await job.status()
            record = found["internal"]["groups"][0]
            return bool(record.get("incarnation", 0) > before and found["ready"] == "2/2")

        await eventually(restarted, what="the replica restarts")
        assert [pod["metadata"]["uid"] for pod in await node.all()] == [
            pod["metadata"]["uid"] for pod in pods
        ]

        await job.patch(roles=server("llm", "broken")["spec"]["roles"])

        async def halted() -> bool:
            assert len(await node.ready()) == 2
            return bool((await job.status()).get("reason") == "ProgressDeadlineExceeded")

        await eventually(halted, what="the rollout halts")
        assert len(await node.all()) == 3
        await job.patch(roles=server("llm", "own:3")["spec"]["roles"])
        await eventually(lambda: job.complete("2/2"), 90, what="the repaired revision serves")
        assert {_image(pod) for pod in await node.all()} == {"own:3"}


async def test_pods_of_a_deleted_node_are_not_ready_and_are_replaced(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = installation.plane.namespace()
    job = Job(installation, namespace, "llm")
    async with serving(installation, monkeypatch, namespace) as node:
        await installation.call("POST", JOBS.format(namespace), server("llm", replicas=1))
        await eventually(lambda: job.complete("1/1"), what="one replica serves")
        (before,) = await node.all()
        await installation.call("DELETE", f"/api/v1/nodes/{node.agent.node}")

        async def replaced() -> bool:
            return before["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in await node.all()}

        await eventually(replaced, what="the pod is replaced")
    found = requested(installation)
    name = before["metadata"]["name"]
    assert rights.Right("convoy-operator", "", "pods/status", "patch", name, namespace) in found


async def test_the_api_server_refuses_a_role_without_readiness(installation: Installation) -> None:
    body = server("llm")
    del body["spec"]["roles"][0]["template"]["spec"]["containers"][0]["readinessProbe"]
    with pytest.raises(HTTPError) as refusal:
        await installation.call("POST", JOBS.format(installation.plane.namespace()), body)
    assert "readinessProbe" in refusal.value.read().decode()
