"""Tests of enrolment with real tokens, and of streams with real certificates."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from cryptography import x509

from convoy_agents.wire import hub_pb2 as wire
from convoy_agents.wire import hub_pb2_grpc
from convoy_crds.terms import LABEL_AGENT_READY
from convoy_operator.hub import enrolment, sessions
from convoy_operator.hub.call_limiter import MAX_CALLS_PER_ADDRESS
from convoy_operator.hub.server import STREAMS_OF_A_CONNECTION

from .conftest import FakeAgent, Installation, channel, dialled, eventually, hello, running, signing_request

ENROL = "/convoy.wire.Enrolment/Enrol"


async def refused(call: Any) -> grpc.StatusCode:
    """Return the status code of a call that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code()


async def test_only_an_agents_token_gets_a_certificate_and_only_for_its_node(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = f"{installation.namespace}-n"
    await installation.node(node)
    async with running(installation, monkeypatch) as operator:
        agent = FakeAgent(installation, operator.server, node)
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


async def test_a_stream_needs_a_convoy_certificate_and_reports_only_its_node(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = f"{installation.namespace}-n"
    await installation.node(node)
    async with running(installation, monkeypatch) as operator:
        agent = FakeAgent(installation, operator.server, node)
        await agent.enrol()
        hub = operator.server.session_port, await installation.ca()
        own = agent.key, agent.certificate
        assert (await hello(*hub, *own, node)).WhichOneof("body") == "welcome"
        assert await refused(hello(*hub, None, None, node)) is grpc.StatusCode.UNAVAILABLE
        from datetime import timedelta

        from convoy_operator.hub.ca import Authority, make_authority

        key, request = signing_request()
        forged, _ = Authority(make_authority()).agent(request, node, timedelta(days=1))
        assert await refused(hello(*hub, key, forged, node)) is grpc.StatusCode.UNAVAILABLE
        assert await refused(hello(*hub, *own, "another")) is grpc.StatusCode.PERMISSION_DENIED


async def test_certificate_requests_over_the_rate_limit_are_rejected(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enrolment, "_PER_SECOND", 0.001)
    monkeypatch.setattr(enrolment, "_AT_ONCE", 3)
    async with running(installation, monkeypatch) as operator:
        agent = FakeAgent(installation, operator.server, "n")
        codes = [await refused(agent.enrol("junk")) for _ in range(5)]
    assert codes == [grpc.StatusCode.UNAUTHENTICATED] * 3 + [grpc.StatusCode.RESOURCE_EXHAUSTED] * 2


async def test_enrolment_connections_without_a_request_are_limited(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(installation, monkeypatch) as operator:
        agent = FakeAgent(installation, operator.server, "n")
        async with channel(operator.server.enrolment_port, await installation.ca()) as link:
            silent = link.stream_unary(ENROL, wire.EnrolRequest.SerializeToString)
            calls = [silent(timeout=60) for _ in range(MAX_CALLS_PER_ADDRESS)]
            for call in calls:
                await call.wait_for_connection()

            async def crowded() -> bool:
                return await refused(agent.enrol("junk")) is grpc.StatusCode.RESOURCE_EXHAUSTED

            await eventually(crowded, what="all of them arrive")
            # The hub also ended the silent calls themselves at their deadline.
            assert {await call.code() for call in calls} == {grpc.StatusCode.DEADLINE_EXCEEDED}
        assert await refused(agent.enrol("junk")) is grpc.StatusCode.UNAUTHENTICATED


async def test_streams_over_the_limit_wait_in_their_own_connection(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "REFUSED_SECONDS", 3600)
    async with dialled(installation, monkeypatch) as (operator, agent):
        stub = hub_pb2_grpc.HubStub(agent.link)
        more = [stub.Session(timeout=60) for _ in range(40)]
        turned_away = operator.metrics.agent_streams_refused._value.get
        held = STREAMS_OF_A_CONNECTION - sessions.MAX_STREAMS
        await eventually(lambda: turned_away() >= held, what="some are refused")
        for number in (1, 2, 3):  # Send messages after the refused streams, on the same connection.
            await agent.send(heartbeat=wire.Heartbeat(sent_unix_ms=number))
        await eventually(
            lambda: any(
                one.HasField("heartbeat_reply") and one.heartbeat_reply.sent_unix_ms == 3
                for one in agent.received
            ),
            what="the hub replies to heartbeats meanwhile",
        )
        assert turned_away() == held
        for call in more:
            call.cancel()


async def test_every_heartbeat_gets_a_response(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with dialled(installation, monkeypatch) as (_, agent):
        for number in range(1, 6):
            await agent.send(heartbeat=wire.Heartbeat(sent_unix_ms=number))

        def replies() -> set[int]:
            return {
                one.heartbeat_reply.sent_unix_ms for one in agent.received if one.HasField("heartbeat_reply")
            }

        await eventually(lambda: {1, 2, 3, 4, 5} <= replies(), what="pulses")


async def test_the_label_is_set_with_the_stream_and_removed_after_a_timeout(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = f"{installation.namespace}-n"
    await installation.node(node)

    async def labelled() -> bool:
        found = await installation.call("GET", f"/api/v1/nodes/{node}")
        return found["metadata"].get("labels", {}).get(LABEL_AGENT_READY) == "true"

    async with running(
        installation, monkeypatch, agent_unready_seconds=6.0, agent_silent_seconds=4.0
    ) as operator:
        agent = FakeAgent(installation, operator.server, node)
        await agent.enrol()
        await agent.dial()
        await eventually(labelled)
        await asyncio.sleep(7)
        assert await labelled(), "heartbeats keep the stream open"
        # This heartbeat is the last one, so the agent's silence starts here.
        await agent.send(heartbeat=wire.Heartbeat(sent_unix_ms=1))
        await eventually(lambda: any(message.heartbeat_reply.sent_unix_ms == 1 for message in agent.received))
        await agent.hang_up()
        assert await labelled(), "a broken stream does not count as silence"

        async def unlabelled() -> bool:
            return not await labelled()

        await eventually(unlabelled)
        await agent.dial()
        await eventually(labelled)
        await agent.hang_up()
