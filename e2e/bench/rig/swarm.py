"""Simulates the agents of all fake nodes in one event loop. kwok simulates the kubelets.

The bench signs the agents' certificates itself with the hub's CA. The hub would issue only two certificates
a second to one address.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import aiohttp
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from convoy_agents.channels import Identity
from convoy_agents.enrol import signing_request
from convoy_crds.terms import CA_SECRET, LABEL_JOB
from convoy_operator.hub import ca
from e2e.bench.rig.api import Api, ApiError, Object
from e2e.bench.rig.fake_agent import FakeAgent, MemberNodes
from e2e.bench.rig.fake_pod import FakePod

_PODS = "/api/v1/pods"
_LIFE = timedelta(hours=24)


async def identities(api: Api, namespace: str, nodes: Iterable[str]) -> dict[str, Identity]:
    """Issue a certificate for each node's agent, as the hub's Enrolment service does."""
    secret = await api.get(f"/api/v1/namespaces/{namespace}/secrets/{CA_SECRET}")
    pair = {name: base64.b64decode(text) for name, text in secret["data"].items()}
    authority = ca.Authority(ca.Identity(pair["tls.key"], pair["tls.crt"]))
    return {node: await asyncio.to_thread(_issue, authority, node) for node in nodes}


def _issue(authority: ca.Authority, node: str) -> Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate, ends = authority.agent(signing_request(key, node), node, _LIFE)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Identity(node, certificate, pem, authority.certificate_pem, ends.timestamp())


class Swarm:
    """All simulated agents, and one watch that tells them which pods run."""

    def __init__(self, api: Api, hub: str, certificates: dict[str, Identity]) -> None:
        self._api = api
        member_nodes: MemberNodes = {}
        self.agents = {
            node: FakeAgent(node, hub, identity, member_nodes, self._shut_down, self._progressing)
            for node, identity in certificates.items()
        }
        self.training = False
        """True if the ranks of all pods make steps."""
        self._dead: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._exit_tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Connect the agents of all nodes."""
        self._tasks = [asyncio.create_task(self._watch())]
        self._tasks += [asyncio.create_task(agent.run()) for agent in self.agents.values()]

    async def stop(self) -> None:
        """Stop all agents at once, without a goodbye, as a crash does."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._exit_tasks, return_exceptions=True)
        for agent in self.agents.values():
            agent.reboot()

    @property
    def connected(self) -> int:
        """Number of agents with a session."""
        return sum(agent.connected for agent in self.agents.values())

    def crash(self, nodes: Sequence[str]) -> None:
        """Crash these nodes."""
        self._dead |= set(nodes)
        for node in nodes:
            self.agents[node].dead.set()

    def reboot(self, nodes: Sequence[str]) -> None:
        """Start these crashed nodes again, with no pod running."""
        self._dead -= set(nodes)
        for node in nodes:
            self.agents[node].reboot()
            self.agents[node].dead.clear()

    def _progressing(self, pod: FakePod) -> bool:
        # A step needs all members of the job, so one dead node stops the whole job.
        return self.training and not (pod.member_nodes & self._dead)

    def _shut_down(self, pod: FakePod, exit_code: int) -> None:
        task = asyncio.create_task(self._set_ended(pod, exit_code))
        self._exit_tasks.add(task)
        task.add_done_callback(self._exit_tasks.discard)

    async def _set_ended(self, pod: FakePod, exit_code: int) -> None:
        """Patch a pod's status as a kubelet does when the main container ends."""
        ended = {"terminated": {"exitCode": exit_code, "reason": "Completed" if exit_code == 0 else "Error"}}
        status = {
            "phase": "Failed" if exit_code else "Succeeded",
            "containerStatuses": [
                {
                    "name": "worker",
                    "image": "",
                    "imageID": "",
                    "ready": False,
                    "restartCount": 0,
                    "state": ended,
                }
            ],
        }
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        with contextlib.suppress(ApiError, aiohttp.ClientError, TimeoutError):
            await self._api.patch(path, {"status": status})

    async def _watch(self) -> None:
        """Watch the running pods and report each change to the agent of the pod's node."""
        which = {"labelSelector": LABEL_JOB, "fieldSelector": "status.phase=Running"}
        while True:
            with contextlib.suppress(ApiError, aiohttp.ClientError, TimeoutError, OSError):
                listed = await self._api.get(_PODS, **which)
                self._replace(listed["items"] or [])
                version = listed["metadata"]["resourceVersion"]
                async for kind, raw in self._api.watch(_PODS, version, **which):
                    self._apply(kind, raw)
            await asyncio.sleep(0.2)

    def _replace(self, items: Sequence[Object]) -> None:
        running = {raw["metadata"]["uid"] for raw in items}
        for agent in self.agents.values():
            for uid in [uid for uid in agent.pods if uid not in running]:
                agent.remove_pod(uid)
        for raw in items:
            self._apply("ADDED", raw)

    def _apply(self, kind: str, raw: dict[str, Any]) -> None:
        metadata = raw["metadata"]
        agent = self.agents.get(raw["spec"].get("nodeName", ""))
        if agent is None or agent.node in self._dead:
            return
        if kind == "DELETED":
            agent.remove_pod(metadata["uid"])
        elif metadata["uid"] not in agent.pods:
            agent.add_pod(
                FakePod(
                    uid=metadata["uid"],
                    namespace=metadata["namespace"],
                    name=metadata["name"],
                    node=agent.node,
                    job=metadata["labels"][LABEL_JOB],
                )
            )
