"""Fakes of a hub, a kubelet, a launcher and ranks. The tests connect them to real agents, through real
sockets with real certificates.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

from convoy_agents.channels import Identity
from convoy_agents.csi.library import Sources
from convoy_agents.daemon import Agent
from convoy_agents.settings import Settings
from convoy_agents.wire import csi_pb2, csi_pb2_grpc, hub_pb2, hub_pb2_grpc, slot_tokens
from convoy_agents.wire.slot_tokens import SlotToken
from convoy_crds import terms

TIMEOUT = 30.0
"""Maximum seconds that a test waits for one expected event."""


class Authority:
    """A certificate authority for one test."""

    def __init__(self, key: Any = None) -> None:
        self.key = key or ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self.certificate = self._build(self.name, self.key.public_key(), [], ca=True)
        self.pem = self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str, public_key: Any, common_name: str, seconds: float = 3600) -> bytes:
        """Return a certificate with the DNS name `name`, in PEM."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        made = self._build(subject, public_key, [name], ca=False, seconds=seconds)
        return made.public_bytes(serialization.Encoding.PEM)

    def identity(self, node: str, name: str | None = None, seconds: float = 3600) -> Identity:
        """Return a client identity for the agent of `node`. If `name` is given, the certificate contains it
        instead of the agent's DNS name.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self.issue(name or terms.agent_server_name(node), key.public_key(), node, seconds)
        ends = x509.load_pem_x509_certificate(certificate).not_valid_after_utc.timestamp()
        return Identity(node, certificate, private_pem(key), self.pem, ends)

    def _build(
        self, subject: x509.Name, public_key: Any, names: list[str], *, ca: bool, seconds: float = 3600
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(seconds=seconds))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False
            )
        digest = None if isinstance(self.key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
        return builder.sign(self.key, digest)


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


class FakeHub:
    """A fake hub. It issues certificates for nodes' tokens, records the agents' messages, and sends
    messages for the test.
    """

    def __init__(self, authority: Authority, address: str = "127.0.0.1") -> None:
        self.authority = authority
        self.address = address
        self.messages: list[tuple[str, hub_pb2.AgentMessage]] = []
        self.certificate_seconds = 3600.0
        self.redirect_to: list[str] = []
        """Addresses for redirects. The hub replies to each Hello with the next address, and with Welcome
        once the list is empty.
        """
        self.mute: set[str] = set()
        """Names of nodes to whose heartbeats the hub does not reply."""
        self.enrolments = 0
        self.sessions = 0
        self._outgoing: dict[str, asyncio.Queue[hub_pb2.HubMessage | None]] = {}
        self._stores: dict[str, dict[str, hub_pb2.Store]] = {}
        """The latest Store messages, by node and by name of the store. The hub sends them again in each new
        session, as the real hub does.
        """
        self._changed = asyncio.Condition()
        self.enrol_port = 0
        self.session_port = 0

    async def start(self, session_port: int = 0) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        pair = (private_pem(key), self.authority.issue(terms.HUB_SERVER_NAME, key.public_key(), "hub"))
        self._enrolment = grpc.aio.server()
        self._session = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        hub_pb2_grpc.add_EnrolmentServicer_to_server(self, self._enrolment)
        hub_pb2_grpc.add_HubServicer_to_server(self, self._session)
        self.enrol_port = self._enrolment.add_secure_port(
            f"{self.address}:0", grpc.ssl_server_credentials([pair])
        )
        self.session_port = self._session.add_secure_port(
            f"{self.address}:{session_port}",
            grpc.ssl_server_credentials([pair], self.authority.pem, require_client_auth=True),
        )
        await self._enrolment.start()
        await self._session.start()

    async def stop(self) -> None:
        await self._session.stop(0)
        await self._enrolment.stop(0)

    async def Enrol(self, request: Any, context: Any) -> Any:
        node = request.token.removeprefix("token-of-")
        if node == request.token:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token was not accepted")
        self.enrolments += 1
        csr = x509.load_pem_x509_csr(request.csr_pem)
        name = terms.agent_server_name(node)
        return hub_pb2.EnrolReply(
            certificate_pem=self.authority.issue(name, csr.public_key(), node, self.certificate_seconds),
            expires_unix=int(datetime.datetime.now().timestamp() + self.certificate_seconds),
            node=node,
        )

    async def Session(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        hello = await anext(aiter(requests))
        node = hello.hello.node
        if self.redirect_to:
            yield hub_pb2.HubMessage(redirect=hub_pb2.Redirect(address=self.redirect_to.pop(0)))
            return
        assert context.auth_context()["x509_common_name"] == [node.encode()]
        self.sessions += 1
        await self._note(node, hello)
        outgoing = self._outgoing[node] = asyncio.Queue()
        yield hub_pb2.HubMessage(welcome=hub_pb2.Welcome(leader="test"))
        for store in self._stores.get(node, {}).values():
            yield hub_pb2.HubMessage(store=store)

        async def listen() -> None:
            async for message in requests:
                if message.HasField("heartbeat") and node not in self.mute:
                    reply = hub_pb2.HeartbeatReply(sent_unix_ms=message.heartbeat.sent_unix_ms)
                    outgoing.put_nowait(hub_pb2.HubMessage(heartbeat_reply=reply))
                await self._note(node, message)
            outgoing.put_nowait(None)

        listening = asyncio.create_task(listen())
        try:
            while (message := await outgoing.get()) is not None:
                yield message
        finally:
            listening.cancel()

    async def _note(self, node: str, message: Any) -> None:
        async with self._changed:
            self.messages.append((node, message))
            self._changed.notify_all()

    def slot_token(self, node: str, job_uid: str, incarnation: int, slot: int) -> str:
        """Return a valid slot token for the given node and slot."""
        return slot_tokens.sign(SlotToken(job_uid, incarnation, slot, node), self.authority.key)

    def send(self, node: str, **body: Any) -> None:
        if "assignment" in body and not body["assignment"].slot_token:
            plan = body["assignment"]
            plan.slot_token = self.slot_token(node, plan.job_uid, plan.incarnation, plan.slot)
        if "store" in body:
            self._stores.setdefault(node, {})[body["store"].name] = body["store"]
        self._outgoing[node].put_nowait(hub_pb2.HubMessage(**body))

    def hang_up(self, node: str) -> None:
        self._outgoing[node].put_nowait(None)

    async def until(self, wanted: Callable[[str, Any], bool], start: int = 0) -> Any:
        """Wait for a message from any agent that `wanted` accepts, and return the message. Ignore the first
        `start` messages of the test.
        """

        def find() -> Any:
            return next((message for node, message in self.messages[start:] if wanted(node, message)), None)

        async with asyncio.timeout(TIMEOUT), self._changed:
            await self._changed.wait_for(lambda: find() is not None)
            return find()

    async def report(self, uid: str, wanted: Callable[[Any], bool], start: int = 0) -> Any:
        """Wait for a PodReport of this pod that `wanted` accepts, and return the first such report. The
        report may be in a Hello.
        """

        def reports(message: Any) -> list[Any]:
            kind = message.WhichOneof("body")
            return list(message.hello.pods) if kind == "hello" else [message.pod] if kind == "pod" else []

        found: list[Any] = []

        def check(node: str, message: Any) -> bool:
            found[:] = [entry for entry in reports(message) if entry.pod_uid == uid and wanted(entry)]
            return bool(found)

        await self.until(check, start)
        return found[0]

    async def trouble(self, uid: str, kind: str, start: int = 0) -> str:
        """Wait until the pod reports a checkpoint problem of this kind, and return the problem's message."""
        report = await self.report(uid, lambda report: kind in troubles(report), start)
        return troubles(report)[kind]

    async def untroubled(self, uid: str, start: int = 0) -> None:
        """Wait until the pod reports no checkpoint problems."""
        await self.report(uid, lambda report: not report.troubles, start)


def troubles(report: Any) -> dict[str, str]:
    """Return the messages about checkpoint problems in a PodReport, by kind."""
    return {hub_pb2.Trouble.Kind.Name(one.kind): one.message for one in report.troubles}


class Pod:
    """A fake launcher or rank that is connected to the agent's socket in the mounted folder."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def dial(cls, socket: Path, **hello: Any) -> Pod:
        # Connect through a descriptor of the folder, because the path of a test's folder is too long for a
        # socket address.
        folder = os.open(socket.parent, os.O_PATH)
        try:
            pod = cls(*await asyncio.open_unix_connection(f"/proc/self/fd/{folder}/{socket.name}"))
        finally:
            os.close(folder)
        if hello:
            pod.send(type="hello", **hello)
        return pod

    def send(self, **message: Any) -> None:
        body = json.dumps(message).encode()
        self.writer.write(len(body).to_bytes(4, "big") + body)

    async def receive(self) -> dict[str, Any]:
        async with asyncio.timeout(TIMEOUT):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            message: dict[str, Any] = json.loads(await self.reader.readexactly(size))
            return message

    async def ended(self) -> bool:
        """Wait until the agent closes the connection, and return True."""
        async with asyncio.timeout(TIMEOUT):
            with contextlib.suppress(ConnectionError):
                while await self.reader.read(4096):
                    pass
        return True

    def close(self) -> None:
        self.writer.close()


class Host:
    """A node with its own folders and a real agent. It also makes the kubelet's calls to the agent's CSI
    driver.
    """

    def __init__(
        self, root: Path, node: str, hub: FakeHub, memory: int = 256 * 2**20, address: str = "127.0.0.1"
    ) -> None:
        self.root = root / node
        self.node = node
        (self.root / "kubelet").mkdir(parents=True)
        (self.root / "token").write_text(f"token-of-{node}\n")
        (self.root / "ca.crt").write_bytes(hub.authority.pem)
        self.settings = Settings(
            node=node,
            pod_ip=address,
            hub=f"{hub.address}:{hub.enrol_port}",
            hub_session=f"{hub.address}:{hub.session_port}",
            token_file=self.root / "token",
            ca_file=self.root / "ca.crt",
            run_dir=self.root / "run",
            kubelet_dir=self.root / "kubelet",
            stores_dir=self.root / "stores",
            models_dir=self.root / "models",
            peer_port=0,
            metrics_port=0,
            checkpoint_memory=memory,
        )
        self.pods: list[Pod] = []
        """Connections that must stay open until the end of the test."""
        self.agent: Agent
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.agent = Agent(self.settings, lambda: fake_sources(self.root))
        self._task = asyncio.create_task(self.agent.run())
        await eventually(lambda: self._task is None or self._task.done() or not self.agent.not_ready())
        if self._task.done():
            self._task.result()

    async def stop(self) -> None:
        if self._task:
            self.agent.leave("test")
            await asyncio.wait_for(self._task, TIMEOUT)
            self._task = None

    async def crash(self) -> None:
        """Stop the agent without its clean-up, as in a crash. The pods' sockets stop responding, but the
        folders and mounts stay.
        """
        assert self._task
        await self.agent.pods.close_all()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None

    @property
    def peer_address(self) -> str:
        """Return the address at which other agents reach this agent."""
        return f"{self.settings.pod_ip}:{self.agent.peer_port}"

    def target(self, uid: str) -> Path:
        return self.settings.kubelet_dir / "pods" / uid / "volumes" / "kubernetes.io~csi" / "convoy" / "mount"

    async def publish(self, uid: str, volume: str = "", **changes: Any) -> None:
        fields: dict[str, Any] = {
            "volume_id": volume or f"csi-{uid}",
            "target_path": str(self.target(uid)),
            "readonly": True,
            "volume_context": {
                "csi.storage.k8s.io/pod.name": f"pod-{uid}",
                "csi.storage.k8s.io/pod.namespace": "default",
                "csi.storage.k8s.io/pod.uid": uid,
                "csi.storage.k8s.io/ephemeral": "true",
            },
        }
        async with self.kubelet() as channel:
            request = csi_pb2.NodePublishVolumeRequest(**{**fields, **changes})
            await csi_pb2_grpc.NodeStub(channel).NodePublishVolume(request, timeout=TIMEOUT)

    async def unpublish(self, uid: str, volume: str = "", target: Path | None = None) -> None:
        async with self.kubelet() as channel:
            request = csi_pb2.NodeUnpublishVolumeRequest(
                volume_id=volume or f"csi-{uid}", target_path=str(target or self.target(uid))
            )
            await csi_pb2_grpc.NodeStub(channel).NodeUnpublishVolume(request, timeout=TIMEOUT)

    def kubelet(self) -> grpc.aio.Channel:
        socket = self.settings.kubelet_dir / "plugins" / terms.CSI_DRIVER / "csi.sock"
        return grpc.aio.insecure_channel(f"unix:{socket}")

    def registrar(self) -> grpc.aio.Channel:
        name = f"{terms.CSI_DRIVER}-reg.sock"
        return grpc.aio.insecure_channel(f"unix:{self.settings.kubelet_dir / 'plugins_registry' / name}")

    async def launcher(self, uid: str, incarnation: int = 0) -> Pod:
        return await Pod.dial(
            self.target(uid) / "agent.sock", role="launcher", incarnation=incarnation, pid=1, python="3.11"
        )

    async def rank(self, uid: str, rank: int, incarnation: int) -> Pod:
        return await Pod.dial(
            self.target(uid) / "agent.sock", role="rank", incarnation=incarnation, rank=rank
        )


def fake_sources(root: Path) -> Sources:
    """Return the folders of a fake image with the library packages. The files have placeholder content."""
    workloads, face = root / "image" / "convoy_workloads", root / "image" / "convoy"
    commands = root / "image" / "convoy_commands"
    for path, text in {
        workloads / "__init__.py": "",
        workloads / "launcher" / "__init__.py": "",
        workloads / "launcher" / "convoy_launch.py": "print('launched')\n",
        workloads / "runtime" / "__init__.py": "",
        workloads / "runtime" / "deep" / "part.py": "PART = 1\n",
        workloads / "engines" / "heavy.py": "import torch\n",
        face / "__init__.py": "FACE = 1\n",
        commands / "__init__.py": "",
        face / "cli" / "__main__.py": "import typer\n",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Sources(workloads, face, commands)


def assignment(
    job: str,
    incarnation: int,
    slot: int,
    members: list[tuple[str, Host, int]],
    strict: bool = False,
    namespace: str = "default",
) -> Any:
    """Return the Assignment of one slot, as the hub sends it. `members` contains (pod uid, host, processes)
    in slot order.
    """
    return hub_pb2.Assignment(
        pod_uid=members[slot][0],
        job_uid=f"uid-of-{job}",
        job=f"{namespace}/{job}",
        incarnation=incarnation,
        slot=slot,
        rank_offset=sum(entry[2] for entry in members[:slot]),
        processes=members[slot][2],
        world_size=sum(entry[2] for entry in members),
        master_addr="127.0.0.1",
        master_port=29500,
        hang_seconds=600,
        members=[
            hub_pb2.Member(
                slot=number,
                pod_uid=uid,
                node=host.node,
                peer_address=host.peer_address,
                processes=processes,
            )
            # As in the hub's messages, a slot that does not coordinate commits receives slot 0 only.
            for number, (uid, host, processes) in enumerate(members if strict or not slot else members[:1])
        ],
        command=["python", "train.py"],
        role="worker",
        replica=slot,
        strict=strict,
        slots=len(members),
    )


async def eventually(check: Callable[[], bool]) -> None:
    """Poll until `check` returns True. Tests use it for conditions that cause no event."""
    async with asyncio.timeout(TIMEOUT):
        while not check():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
