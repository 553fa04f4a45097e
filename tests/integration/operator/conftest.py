"""Fixtures that run the operator against a real API server with the permissions from the chart. The tests
act as the agents.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import load_kube_config

from convoy_agents.wire import hub_pb2 as wire
from convoy_agents.wire import hub_pb2_grpc, slot_tokens
from convoy_controllers.controller import Controller
from convoy_controllers.controllers import CONTROLLERS
from convoy_controllers.resources import resource_of
from convoy_crds.kinds import KINDS
from convoy_crds.terms import CA_CONFIG_MAP, HUB_AUDIENCE, HUB_SERVER_NAME, LABEL_AGENT_READY
from convoy_operator import kopf_watch
from convoy_operator.app import Operator
from convoy_operator.client import KubernetesGateway
from convoy_operator.connection import configure_client
from convoy_operator.metrics import Metrics
from convoy_operator.settings import Settings

ROOT = Path(__file__).resolve().parents[3]


def _rules(kind: str, number: int = 0) -> list[dict[str, Any]]:
    """Return the rules of the chart's role of this kind and number. The chart is rendered with default
    values.
    """
    text = (ROOT / "charts/convoy/templates/operator-rbac.yaml").read_text()
    documents = list(yaml.safe_load_all(re.sub(r"\{\{.*?\}\}", "", text)))
    role = [one for one in documents if one["kind"] == kind][number]
    return [{name: value for name, value in rule.items() if value is not None} for rule in role["rules"]]


OF_CONTROLLERS = yaml.safe_load((ROOT / "charts/convoy/files/operator-rules.yaml").read_text())["rules"]
CLUSTER_RULES = [*OF_CONTROLLERS, *_rules("ClusterRole")]
NAMESPACE_RULES, NODE_LEASE_RULES = _rules("Role"), _rules("Role", 1)
NODE_LEASES = "kube-node-lease"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="session", autouse=True)
def quiet_logs() -> None:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory(), cache_logger_on_first_use=False)


async def eventually(
    check: Callable[[], Any] | Callable[[], Awaitable[Any]], seconds: float = 45.0, what: str = ""
) -> Any:
    """Wait until `check` returns a true value, and return that value."""
    deadline = time.monotonic() + seconds
    while True:
        found = check()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what or check}")
        await asyncio.sleep(0.05)


@dataclass
class Installation:
    """A namespace with the service accounts of the operator and the agents. Its methods send requests as an
    administrator.
    """

    plane: Any
    namespace: str
    token: str

    async def call(self, method: str, path: str, body: object = None, **more: Any) -> dict[str, Any]:
        """Send one request as an administrator."""
        return await asyncio.to_thread(self.plane.request, method, path, body, **more)

    async def agent_token(
        self, node: str, audience: str = HUB_AUDIENCE, account: str = "convoy-agent"
    ) -> str:
        """Return a token that is bound to a pod on `node`, like the tokens that kubelets give to pods."""
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        pod = await self.call(
            "POST",
            pods,
            {
                "metadata": {"generateName": "agent-"},
                "spec": {
                    "nodeName": node,
                    "serviceAccountName": account,
                    "containers": [{"name": "agent", "image": "agent"}],
                },
            },
        )
        bound = {
            "kind": "Pod",
            "apiVersion": "v1",
            "name": pod["metadata"]["name"],
            "uid": pod["metadata"]["uid"],
        }
        response = await self.call(
            "POST",
            f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"audiences": [audience], "boundObjectRef": bound},
            },
        )
        return str(response["status"]["token"])

    async def node(self, name: str) -> None:
        """Create a ready node."""
        conditions = [{"type": "Ready", "status": "True"}]
        status = {"conditions": conditions, "nodeInfo": {"machineID": f"machine-of-{name}"}}
        await self.call("POST", "/api/v1/nodes", {"metadata": {"name": name}, "status": status})

    async def ca(self) -> bytes:
        """Return the CA certificate that agents mount."""
        found = await self.call("GET", f"/api/v1/namespaces/{self.namespace}/configmaps/{CA_CONFIG_MAP}")
        return str(found["data"]["ca.crt"]).encode()


@pytest.fixture
def installation(control_plane: Any) -> Installation:
    """A new namespace for an operator that has exactly the permissions from the chart."""
    return installed(control_plane)


def installed(control_plane: Any) -> Installation:
    """Create a namespace for an operator that has exactly the permissions from the chart."""
    _drop_others(control_plane)
    namespace = control_plane.namespace("convoy")
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    for account in ("convoy-operator", "convoy-agent", "other"):
        control_plane.request("POST", accounts, {"metadata": {"name": account}})
    subject = [{"kind": "ServiceAccount", "name": "convoy-operator", "namespace": namespace}]
    meta = {"metadata": {"name": namespace}}
    control_plane.request("POST", f"{RBAC}/clusterroles", {**meta, "rules": CLUSTER_RULES})
    control_plane.request(
        "POST",
        f"{RBAC}/clusterrolebindings",
        {
            **meta,
            "subjects": subject,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": namespace},
        },
    )
    for place, rules in ((namespace, NAMESPACE_RULES), (NODE_LEASES, NODE_LEASE_RULES)):
        control_plane.request("POST", f"{RBAC}/namespaces/{place}/roles", {**meta, "rules": rules})
        control_plane.request(
            "POST",
            f"{RBAC}/namespaces/{place}/rolebindings",
            {
                **meta,
                "subjects": subject,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": namespace},
            },
        )
    token = control_plane.request(
        "POST",
        f"{accounts}/convoy-operator/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    )["status"]["token"]
    return Installation(control_plane, namespace, token)


async def client_of(plane: Any, token: str | None = None) -> ApiClient:
    """Return a client with the permissions of the token, or of an administrator if there is no token."""
    configuration = Configuration()
    await load_kube_config(str(plane.kubeconfig(token)), client_configuration=configuration)
    configuration.connection_pool_maxsize = 64
    return ApiClient(configure_client(configuration))


def _drop_others(control_plane: Any) -> None:
    """Delete the objects of earlier tests, and remove the agent-ready labels. Otherwise this test's
    operator would reconcile those objects.
    """
    cluster = [kind for kind in KINDS if not kind.namespaced and kind.name != "Engine"]
    for path in (resource_of(kind).path() for kind in cluster):
        for left in control_plane.request("GET", path)["items"]:
            control_plane.request("DELETE", f"{path}/{left['metadata']['name']}")
    namespaced = [resource_of(kind).path() for kind in KINDS if kind.namespaced]
    for collection in (*namespaced, "/api/v1/pods?labelSelector=convoy.dev/job"):
        group, _, kind = collection.partition("?")[0].rpartition("/")
        for left in control_plane.request("GET", collection)["items"]:
            meta = left["metadata"]
            path = f"{group}/namespaces/{meta['namespace']}/{kind}/{meta['name']}?gracePeriodSeconds=0"
            control_plane.request("DELETE", path)
    label = {"metadata": {"labels": {LABEL_AGENT_READY: None}}}
    for node in control_plane.request("GET", f"/api/v1/nodes?labelSelector={LABEL_AGENT_READY}")["items"]:
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        control_plane.request("PATCH", path, label, "application/merge-patch+json")


@pytest.fixture
async def gateway(control_plane: Any) -> AsyncIterator[KubernetesGateway]:
    """A gateway with the permissions of an administrator."""
    async with await client_of(control_plane) as client:
        yield KubernetesGateway(client, Settings(), Metrics())


def settings_for(installation: Installation, **more: Any) -> Settings:
    """Return settings for a replica. The system chooses free ports, because other processes use the
    machine.
    """
    return Settings(
        **{
            "namespace": installation.namespace,
            "pod_name": "replica",
            "enrolment_port": 0,
            "session_port": 0,
            "metrics_port": 0,
            "probe_port": 0,
            "hub_bind": "127.0.0.1",
            "http_bind": "127.0.0.1",
            "qps": 0.0,
            "backoff_min_seconds": 0.1,
            "agent_grace_seconds": 2.0,
            **more,
        }
    )


def _of_a_process_that_goes_on(settings: Settings, original: Any = kopf_watch.kopf_settings) -> Any:
    """Return kopf settings that do not kill the process. By default kopf kills it some time after kopf was
    stopped.
    """
    chosen = original(settings)
    chosen.process.ultimate_exiting_timeout = None
    return chosen


@asynccontextmanager
async def running(
    installation: Installation,
    monkeypatch: pytest.MonkeyPatch,
    controllers: Sequence[Controller[Any]] = CONTROLLERS,
    **more: Any,
) -> AsyncIterator[Operator]:
    """Run a complete replica within the test's process."""
    monkeypatch.setenv("KUBECONFIG", str(installation.plane.kubeconfig(installation.token)))
    monkeypatch.setattr(kopf_watch, "kopf_settings", _of_a_process_that_goes_on)
    plane, token = installation.plane, installation.token
    async with (
        await client_of(plane, token) as client,
        await client_of(plane, token) as aside,
        await client_of(plane, token) as lease,
    ):
        operator = Operator(settings_for(installation, **more), client, aside, lease, controllers)
        task = asyncio.create_task(operator.run())
        try:
            await eventually(lambda: task.done() or operator.leads, what="operator leads")
            if task.done():
                task.result()
            yield operator
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def signing_request(name: str = "whatever") -> tuple[bytes, bytes]:
    """Return a key and a certificate signing request, both in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return pem, request.public_bytes(serialization.Encoding.PEM)


def channel(
    port: int, ca: bytes, key: bytes | None = None, certificate: bytes | None = None
) -> grpc.aio.Channel:
    """Return a gRPC channel to a port of the hub, with a client certificate if one is given."""
    credentials = grpc.ssl_channel_credentials(ca, key, certificate)
    options = [("grpc.ssl_target_name_override", HUB_SERVER_NAME), ("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options)


async def hello(port: int, ca: bytes, key: bytes | None, certificate: bytes | None, node: str) -> Any:
    """Send a Hello for a node and return the hub's response. The response is EOF if the hub ends the stream
    normally.

    Raises AioRpcError if the hub refuses the stream, or if either side rejects the other's certificate.
    """
    async with channel(port, ca, key, certificate) as link:
        call = hub_pb2_grpc.HubStub(link).Session(timeout=10)
        await call.write(wire.AgentMessage(hello=wire.Hello(node=node)))
        response = await call.read()
        if response is grpc.aio.EOF:
            await call
        return response


class FakeAgent:
    """The agent of a node as the hub sees it. It sends the reports that a test chooses, and records what it
    receives.
    """

    def __init__(self, installation: Installation, hub: Any, node: str) -> None:
        self.installation, self.hub, self.node = installation, hub, node
        self.received: list[wire.HubMessage] = []
        self.key = self.certificate = b""
        self._tasks: list[asyncio.Task[None]] = []
        self._writing = asyncio.Lock()

    async def enrol(self, token: str | None = None) -> wire.EnrolReply:
        """Exchange a service-account token for a certificate."""
        token = token or await self.installation.agent_token(self.node)
        self.key, request = signing_request()
        async with channel(self.hub.enrolment_port, await self.installation.ca()) as link:
            reply = await hub_pb2_grpc.EnrolmentStub(link).Enrol(
                wire.EnrolRequest(token=token, csr_pem=request), timeout=10
            )
        self.certificate = reply.certificate_pem
        return reply

    async def dial(self, *pods: wire.PodReport) -> None:
        """Open the stream with a Hello that contains these pods, and wait until the hub admits it."""
        ca = await self.installation.ca()
        self.authority = slot_tokens.key_id(x509.load_pem_x509_certificate(ca).public_key())
        # Retry, because the hub's watch may not have reported the node yet.
        await eventually(lambda: self._let_in(ca, pods), what="the hub admits the agent")
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._send_heartbeats())]

    async def send(self, **body: Any) -> None:
        """Send one message. If a pod has an incarnation, the message names the CA that signed the pod's
        slot token.
        """
        for report in (*body.get("hello", wire.Hello()).pods, *([body["pod"]] if "pod" in body else [])):
            if report.incarnation and not report.authority:
                report.authority = self.authority
        async with self._writing:  # A stream accepts one write at a time.
            await self.stream.write(wire.AgentMessage(**body))

    async def _let_in(self, ca: bytes, pods: tuple[wire.PodReport, ...]) -> bool:
        """Send the Hello. Return False if the hub does not know the node yet."""
        self.link = channel(self.hub.session_port, ca, self.key, self.certificate)
        self.stream = hub_pb2_grpc.HubStub(self.link).Session()
        await self.send(
            hello=wire.Hello(
                node=self.node,
                peer_address=f"{self.node}:8472",
                version="t",
                pods=pods,
                hardware=wire.Hardware(known=True),
            )
        )
        try:
            async with asyncio.timeout(20):
                response = await self.stream.read()
        except grpc.aio.AioRpcError as error:
            await self.link.close()
            if error.code() is not grpc.StatusCode.FAILED_PRECONDITION:
                raise
            return False
        assert response is not grpc.aio.EOF and response.HasField("welcome"), response
        self.received.append(response)
        return True

    async def _read(self) -> None:
        while (message := await self.stream.read()) is not grpc.aio.EOF:
            self.received.append(message)

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(1)
            await self.send(heartbeat=wire.Heartbeat(sent_unix_ms=time.time_ns() // 1_000_000))

    async def hang_up(self) -> None:
        """Close the stream without a Goodbye."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.stream.cancel()
        await self.link.close()

    def last(self, kind: str) -> Any:
        """Return the newest received message of this kind."""
        return next((getattr(m, kind) for m in reversed(self.received) if m.WhichOneof("body") == kind), None)


@asynccontextmanager
async def dialled(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Operator, FakeAgent]]:
    """Run a complete replica in the test's process, with one node whose agent is connected."""
    node = f"{installation.namespace}-n"
    await installation.node(node)
    async with running(installation, monkeypatch) as operator:
        agent = FakeAgent(installation, operator.server, node)
        await agent.enrol()
        await agent.dial()
        yield operator, agent
        await agent.hang_up()
