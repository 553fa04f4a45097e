"""A test of replicas that talk to each other in the complete operator. The test acts as kubelet and agent."""

from __future__ import annotations

import pytest

from .conftest import Installation, eventually
from .test_serving import JOBS, Job, server, serving

ENGINE = {
    "apiVersion": "convoy.dev/v1alpha1",
    "kind": "Engine",
    "metadata": {"name": "peered"},
    "spec": {"image": "peered:1", "command": ["serve"], "roleKind": "Serving", "replicaPeers": True},
}


async def test_each_replica_gets_the_addresses_of_the_others(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = installation.plane.namespace()
    job = Job(installation, namespace, "search")
    body = server("search", roles=[{"name": "worker", "engine": {"name": "peered"}}])
    await installation.call("POST", "/apis/convoy.dev/v1alpha1/engines", ENGINE)
    async with serving(installation, monkeypatch, namespace) as node:
        node.ips = {f"search-worker-{number}-0": f"10.1.0.{number + 1}" for number in range(3)}

        async def are_peers(count: int) -> bool:
            """Return True if each of `count` pods got its own address, and then those of the others."""
            pods = {pod["metadata"]["uid"]: node.ips[pod["metadata"]["name"]] for pod in await node.all()}
            every = [f"{ip}:8080" for ip in sorted(pods.values())]
            sent = [one.endpoints for one in node.agent.received if one.HasField("endpoints")]
            known = {pods[one.pod_uid]: list(one.addresses) for one in sent if one.pod_uid in pods}
            rings = {ip: every[at:] + every[:at] for at, ip in enumerate(sorted(pods.values()))}
            return len(pods) == count and known == rings

        await installation.call("POST", JOBS.format(namespace), body)
        await eventually(lambda: are_peers(2), what="two replicas know each other")
        await job.patch(replicas=3)
        await eventually(lambda: are_peers(3), what="three replicas know each other")
        await job.patch(replicas=1)
        await eventually(lambda: are_peers(1), what="the last replica knows that it is alone")
