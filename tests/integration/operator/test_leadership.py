"""Tests of complete replicas as processes: leader, follower and takeover."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.ports import free_ports

from convoy_agents.wire import hub_pb2 as wire
from convoy_agents.wire import hub_pb2_grpc

from .conftest import FakeAgent, Installation, channel, eventually
from .test_operator import JOBS, job

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.timeout(240)


class Replica:
    """One process of the operator."""

    def __init__(self, installation: Installation, name: str, folder: Path) -> None:
        self.installation, self.name = installation, name
        self.enrolment_port, self.session_port, self.metrics_port, self.probe_port = free_ports(4)
        self.log = folder / f"{name}.log"

    async def start(self) -> None:
        """Start a process for this replica."""
        folders = ("crds", "controllers", "operator", "agents")
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("KUBERNETES_")},
            "PYTHONPATH": os.pathsep.join(str(ROOT / folder) for folder in folders),
            "KUBECONFIG": str(self.installation.plane.kubeconfig(self.installation.token)),
            "CONVOY_NAMESPACE": self.installation.namespace,
            "CONVOY_POD_NAME": self.name,
            "CONVOY_HUB_BIND": "127.0.0.1",
            "CONVOY_HTTP_BIND": "127.0.0.1",
            "CONVOY_ENROLMENT_PORT": str(self.enrolment_port),
            "CONVOY_SESSION_PORT": str(self.session_port),
            "CONVOY_METRICS_PORT": str(self.metrics_port),
            "CONVOY_PROBE_PORT": str(self.probe_port),
        }
        with self.log.open("ab") as output:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "convoy_operator",
                env=environment,
                cwd="/",
                stdout=output,
                stderr=output,
            )

    async def stop(self) -> None:
        """Kill the process if it is still running."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        await self.process.wait()

    async def get(self, path: str) -> tuple[int, str]:
        """Return the status and the body of a response. The status is 0 if there is no response."""
        port = self.metrics_port if path == "/metrics" else self.probe_port

        def fetch() -> tuple[int, str]:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2) as response:
                    return response.status, response.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()
            except OSError:
                return 0, ""

        return await asyncio.to_thread(fetch)

    async def ready(self) -> bool:
        """Return True if the replica reports that it is ready."""
        return (await self.get("/readyz"))[0] == 200

    async def leads(self) -> bool:
        """Return True if the replica leads."""
        return "\nconvoy_leader 1.0\n" in (await self.get("/metrics"))[1]

    async def follows(self) -> bool:
        """Return True if the replica is ready and does not lead."""
        return await self.ready() and "\nconvoy_leader 0.0\n" in (await self.get("/metrics"))[1]


@pytest.fixture
async def replicas(installation: Installation, tmp_path: Path) -> Any:
    made: list[Replica] = []
    try:
        for name in ("one", "two"):
            made.append(Replica(installation, name, tmp_path))
            await made[-1].start()
            await eventually(made[-1].ready, what=f"{name} is ready")
            # Wait until the first replica leads before starting the second one.
            await eventually(made[0].leads, what="the first leads")
        yield made
    finally:
        for replica in made:
            await replica.stop()
        for replica in made:
            print(replica.name, replica.log.read_text()[-6000:])


async def test_a_stopped_leader_hands_over_and_a_killed_or_frozen_one_is_replaced(
    replicas: list[Replica], installation: Installation
) -> None:
    """Stop, kill and freeze the leader in turn. The other replica must take over each time, and a follower
    must redirect agents to the leader.
    """
    one, two = replicas
    await eventually(one.ready)
    await eventually(two.follows, what="the second follows")
    await _agents_are_sent_to(one, two, installation)
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{installation.namespace}/leases/convoy-operator"
    held = (await installation.call("GET", lease))["spec"]
    one.process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(one.process.wait(), 15) == 0
    ended = datetime.now(UTC)
    await eventually(two.leads, 30, "handed over")
    current = (await installation.call("GET", lease))["spec"]
    assert current["holderIdentity"] != held["holderIdentity"]
    # Compare the Lease's own times. The old leader renewed the Lease shortly before it ended, so without the
    # release the takeover would come almost `leaseDurationSeconds` later.
    waited = datetime.fromisoformat(current["acquireTime"]) - ended
    assert waited < timedelta(seconds=held["leaseDurationSeconds"] - 1), (
        "the takeover did not wait for the Lease to expire"
    )

    await one.start()
    await eventually(one.follows, what="the first is back")
    two.process.kill()
    killed = datetime.now(UTC)
    await eventually(one.leads, 40, "replaced")
    current = (await installation.call("GET", lease))["spec"]
    waited = datetime.fromisoformat(current["acquireTime"]) - killed
    assert waited < timedelta(seconds=12), "lease 8 s, one retry"

    namespace = installation.plane.namespace()
    path = JOBS.format(namespace)
    await installation.call("POST", path, job("after"))

    async def created() -> bool:
        pods = (await installation.call("GET", f"/api/v1/namespaces/{namespace}/pods"))["items"]
        return len(pods) == 2

    await eventually(created, what="the new leader works")

    await two.start()
    await eventually(two.follows, what="the second is back")
    one.process.send_signal(signal.SIGSTOP)
    await eventually(two.leads, 40, "the second takes over")
    one.process.send_signal(signal.SIGCONT)
    assert await asyncio.wait_for(one.process.wait(), 10) in (1, 70)
    await eventually(two.leads, what="the second still leads")


async def _agents_are_sent_to(leader: Replica, follower: Replica, installation: Installation) -> None:
    node = f"{installation.namespace}-n"
    await installation.node(node)
    agent = FakeAgent(installation, follower, node)
    await agent.enrol()
    async with channel(follower.session_port, await installation.ca(), agent.key, agent.certificate) as link:
        call = hub_pb2_grpc.HubStub(link).Session(timeout=10)
        await call.write(wire.AgentMessage(hello=wire.Hello(node=node)))
        response = await call.read()
    assert response.redirect.address == f"127.0.0.1:{leader.session_port}"
