"""Enrolment by real tokens, streams with real certificates."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from cryptography import x509

from convoy_agents.wire import hub_pb2 as wire
from convoy_agents.wire import hub_pb2_grpc
from convoy_crds.terms import LABEL_AGENT_READY

from .conftest import FakeAgent, Installation, channel, eventually, running, signing_request


async def refused(call: Any) -> grpc.StatusCode:
    """The code with which a call fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code()


async def test_only_an_agents_own_token_buys_a_certificate_and_only_for_its_node(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = f"{installation.namespace}-n"
    await installation.node(node)
    async with running(installation, monkeypatch) as operator:
        agent = FakeAgent(installation, operator.hub, node)
        reply = await agent.enrol()
        assert reply.node == node
        certificate = x509.load_pem_x509_certificate(reply.certificate_pem)
        assert certificate.subject.rfc4514_string() == f"CN={node}"
        assert certificate.not_valid_after_utc.timestamp() == reply.expires_unix

        wrong = {
            "audience": await installation.agent_token(node, audience="https://kubernetes.default.svc"),
            "account": await installation.agent_token(node, account="other"),
            "junk": "not-a-token",
            "operator's": installation.token,
        }
        unbound = await installation.call(
            "POST",
            f"/api/v1/namespaces/{installation.namespace}/serviceaccounts/convoy-agent/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"audiences": ["convoy-hub"]},
            },
        )
        wrong["unbound"] = unbound["status"]["token"]
        for name, token in wrong.items():
            assert await refused(agent.enrol(token)) is grpc.StatusCode.UNAUTHENTICATED, name


async def test_a_stream_needs_a_certificate_of_ours_and_speaks_for_its_node_alone(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = f"{installation.namespace}-n"
    await installation.node(node)
    async with running(installation, monkeypatch) as operator:
        agent = FakeAgent(installation, operator.hub, node)
        await agent.enrol()
        ca = await installation.ca()

        async def hello(key: bytes | None, certificate: bytes | None, name: str) -> Any:
            async with channel(operator.hub.session_port, ca, key, certificate) as link:
                call = hub_pb2_grpc.HubStub(link).Session(timeout=10)
                await call.write(wire.AgentMessage(hello=wire.Hello(node=name)))
                answer = await call.read()
                if answer is grpc.aio.EOF:
                    await call
                return answer

        assert (await hello(agent.key, agent.certificate, node)).WhichOneof("body") == "welcome"
        assert await refused(hello(None, None, node)) is grpc.StatusCode.UNAVAILABLE
        from datetime import timedelta

        from convoy_operator.hub.ca import Authority, make_authority

        key, request = signing_request()
        forged, _ = Authority(make_authority()).agent(request, node, timedelta(days=1))
        assert await refused(hello(key, forged, node)) is grpc.StatusCode.UNAVAILABLE
        assert (
            await refused(hello(agent.key, agent.certificate, "another")) is grpc.StatusCode.PERMISSION_DENIED
        )


async def test_every_heartbeat_is_answered(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = f"{installation.namespace}-n"
    await installation.node(node)
    async with running(installation, monkeypatch) as operator:
        agent = FakeAgent(installation, operator.hub, node)
        await agent.enrol()
        await agent.dial()
        for number in range(1, 6):
            await agent.send(heartbeat=wire.Heartbeat(sent_unix_ms=number))

        def answered() -> set[int]:
            return {told.pulse.sent_unix_ms for told in agent.told if told.HasField("pulse")}

        await eventually(lambda: {1, 2, 3, 4, 5} <= answered(), what="pulses")
        await agent.hang_up()


async def test_the_label_comes_with_the_stream_and_goes_with_a_long_silence(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = f"{installation.namespace}-n"
    await installation.node(node)

    async def labelled() -> bool:
        found = await installation.call("GET", f"/api/v1/nodes/{node}")
        return found["metadata"].get("labels", {}).get(LABEL_AGENT_READY) == "true"

    async with running(
        installation, monkeypatch, agent_unready_seconds=2.0, agent_silent_seconds=1.5
    ) as operator:
        agent = FakeAgent(installation, operator.hub, node)
        await agent.enrol()
        await agent.dial()
        await eventually(labelled)
        await asyncio.sleep(3)
        assert await labelled(), "heartbeats keep it"
        await agent.hang_up()
        assert await labelled(), "a broken stream is no silence yet"

        async def unlabelled() -> bool:
            return not await labelled()

        await eventually(unlabelled)
        await agent.dial()
        await eventually(labelled)
        await agent.hang_up()
