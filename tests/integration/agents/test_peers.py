"""Tests of the checks by which the Peer service decides whether a caller may make a call."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import Authority, FakeHub, Host, assignment, eventually

from convoy_agents import metrics, peer
from convoy_agents.channels import Identity, dial
from convoy_agents.wire import hub_pb2, hub_pb2_grpc
from convoy_controllers.checkpoint.generation import Tier
from convoy_crds import terms

UID, PEER = "aaaa-1111", "bbbb-2222"


async def coordinator(make_host: HostMaker, hub: FakeHub) -> tuple[Host, Host]:
    """Start nodes one and two. Node one has slot 0 of a job in incarnation 2, and node two has slot 1.
    Return both nodes.
    """
    one, two = await make_host("one"), await make_host("two")
    await one.publish(UID)
    launcher = await one.launcher(UID)
    await hub.report(UID, lambda report: report.launcher_connected)
    plan = assignment("job", 2, 0, [(UID, one, 1), (PEER, two, 1)])
    plan.memory.copies = 1
    hub.send("one", assignment=plan)
    await launcher.receive()
    return one, two


async def prepare(host: Host, identity: Identity | None, seconds: float = 5, **changes: Any) -> Any:
    fields = {"job_uid": "uid-of-job", "incarnation": 2, "step": 10, "slot": 1, "tier": "local", **changes}
    address, name = f"127.0.0.1:{host.agent.peer_port}", terms.agent_server_name(host.node)
    authority = host.settings.ca_file.read_bytes()
    async with dial(address, name, authority, identity) as channel:
        return await hub_pb2_grpc.PeerStub(channel).Prepare(hub_pb2.PrepareRequest(**fields), timeout=seconds)


async def attests(host: Host, identity: Identity | None, job: str = "uid-of-job") -> bool:
    address, name = f"127.0.0.1:{host.agent.peer_port}", terms.agent_server_name(host.node)
    async with dial(address, name, host.settings.ca_file.read_bytes(), identity) as channel:
        request = hub_pb2.AttestRequest(job_uid=job)
        reply: hub_pb2.AttestReply = await hub_pb2_grpc.PeerStub(channel).Attest(request, timeout=5)
        return reply.member


@pytest.mark.parametrize("caller", ["no certificate", "another authority", "another node", "no agent", "hub"])
async def test_a_stranger_cannot_prepare_a_commit(
    make_host: HostMaker, hub: FakeHub, authority: Authority, caller: str
) -> None:
    one, _ = await coordinator(make_host, hub)
    identity, code = {
        "no certificate": (None, grpc.StatusCode.UNAVAILABLE),
        "another authority": (Authority().identity("two"), grpc.StatusCode.UNAVAILABLE),
        "another node": (authority.identity("three"), grpc.StatusCode.PERMISSION_DENIED),
        "no agent": (authority.identity("two", "two.example.com"), grpc.StatusCode.UNAUTHENTICATED),
        "hub": (authority.identity("two", terms.HUB_SERVER_NAME), grpc.StatusCode.UNAUTHENTICATED),
    }[caller]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await prepare(one, identity)
    assert caught.value.code() is code


KINDS = ["/convoy.wire.Peer/Attest", "/convoy.wire.Shards/Fetch", "/convoy.wire.Shards/Put"]


@pytest.mark.parametrize("kind", KINDS)
async def test_calls_without_a_request_do_not_block_other_nodes(
    make_host: HostMaker, hub: FakeHub, authority: Authority, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(peer, "MAX_CALLS", 60)
    monkeypatch.setattr(peer, "MAX_CALLS_PER_NODE", 40)
    one, _ = await coordinator(make_host, hub)
    refused = metrics.PEER_REFUSED._value.get()
    address, name = f"127.0.0.1:{one.agent.peer_port}", terms.agent_server_name("one")
    own = one.settings.ca_file.read_bytes()
    async with dial(address, name, own, authority.identity("three")) as channel:
        silent: list[Any] = [channel.stream_unary(kind)() for _ in range(80)]
        for call in silent:
            await call.wait_for_connection()
        await eventually(lambda: sum(call.done() for call in silent) == 40)
        assert metrics.PEER_REFUSED._value.get() - refused == 40
        codes = [await call.code() for call in silent if call.done()]
        assert codes == [grpc.StatusCode.RESOURCE_EXHAUSTED] * 40
        assert await attests(one, authority.identity("two"))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await attests(one, authority.identity("three"))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for call in silent:
            call.cancel()
    async with asyncio.timeout(10):
        while not await is_answered(one, authority.identity("three")):
            pass  # some calls are still pending, so try again


async def is_answered(host: Host, identity: Identity) -> bool:
    try:
        await attests(host, identity)
    except grpc.aio.AioRpcError:
        return False
    return True


async def test_a_call_without_a_request_times_out(
    make_host: HostMaker, hub: FakeHub, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "REQUEST_SECONDS", 0.1)
    one, _ = await coordinator(make_host, hub)
    address, name = f"127.0.0.1:{one.agent.peer_port}", terms.agent_server_name("one")
    async with dial(address, name, one.settings.ca_file.read_bytes(), authority.identity("two")) as channel:
        for kind in KINDS[:2]:
            call: Any = channel.stream_unary(kind)(timeout=5)
            assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            assert "no request received in time" in await call.details()


async def test_a_node_can_prepare_only_its_own_slots(
    make_host: HostMaker, hub: FakeHub, authority: Authority
) -> None:
    one, _ = await coordinator(make_host, hub)
    for slot in (0, 7):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await prepare(one, authority.identity("two"), slot=slot)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_a_prepare_without_a_matching_incarnation_returns_immediately(
    make_host: HostMaker, hub: FakeHub, authority: Authority
) -> None:
    one, _ = await coordinator(make_host, hub)
    two = authority.identity("two")
    reply = await prepare(one, two, job_uid="unknown")
    assert reply.verdict == hub_pb2.CommitReply.UNKNOWN
    reply = await prepare(one, two, incarnation=1)
    assert (reply.verdict, reply.seen_incarnation) == (hub_pb2.CommitReply.STALE, 2)
    # With a valid token of incarnation 3, the call ends the commits of incarnation 2.
    reply = await prepare(one, two, incarnation=3, slot_token=hub.slot_token("two", "uid-of-job", 3, 1))
    assert reply.verdict == hub_pb2.CommitReply.UNKNOWN
    reply = await prepare(one, two, incarnation=2)
    assert (reply.verdict, reply.seen_incarnation) == (hub_pb2.CommitReply.STALE, 3)


async def test_a_stranger_cannot_end_a_job_s_commits_with_a_later_incarnation(
    make_host: HostMaker, hub: FakeHub, authority: Authority
) -> None:
    one, _ = await coordinator(make_host, hub)
    shown = {
        "three": ["", hub.slot_token("two", "uid-of-job", 9, 1)],
        # A caller that has a slot in the present incarnation also needs the hub's slot token for a later
        # incarnation.
        "two": ["", hub.slot_token("two", "uid-of-job", 2, 1), hub.slot_token("two", "uid-of-job", 9, 0)],
    }
    for node, tokens in shown.items():
        for token in tokens:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await prepare(one, authority.identity(node), incarnation=9, slot_token=token)
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert one.agent.commit_coordinator.seen("uid-of-job") == 2


async def test_a_stranger_cannot_influence_the_restore_of_a_job(
    make_host: HostMaker, hub: FakeHub, authority: Authority
) -> None:
    one, _ = await coordinator(make_host, hub)
    address, name = f"127.0.0.1:{one.agent.peer_port}", terms.agent_server_name("one")

    async def code(node: str, slot: int) -> str:
        async with dial(
            address, name, one.settings.ca_file.read_bytes(), authority.identity(node)
        ) as channel:
            request = hub_pb2.ResumeRequest(job_uid="uid-of-job", incarnation=2, slot=slot)
            call = hub_pb2_grpc.ShardsStub(channel).Resume(request, timeout=2)
            return str((await call.code()).name)

    assert await code("three", 1) == await code("two", 0) == "PERMISSION_DENIED"
    assert await code("two", 1) == "DEADLINE_EXCEEDED", "a member is heard: what all hold is looked for"


async def test_an_agent_that_does_not_coordinate_replies_unknown(
    make_host: HostMaker, hub: FakeHub, authority: Authority
) -> None:
    """The agent of slot 1 knows only slot 0, so it cannot check whether a caller belongs to the job. It
    must reply UNKNOWN to every caller.
    """
    one, two = await coordinator(make_host, hub)
    await two.publish(PEER)
    launcher = await two.launcher(PEER)
    await hub.report(PEER, lambda report: report.launcher_connected)
    hub.send(
        "two", assignment=assignment("job", 2, 1, [(UID, one, 1), (PEER, two, 1), ("cccc-3333", two, 1)])
    )
    await launcher.receive()
    address, name = f"127.0.0.1:{two.agent.peer_port}", terms.agent_server_name("two")
    own = two.settings.ca_file.read_bytes()
    async with dial(address, name, own, authority.identity("three")) as channel:
        request = hub_pb2.ResumeRequest(job_uid="uid-of-job", incarnation=2, slot=2)
        reply = await hub_pb2_grpc.ShardsStub(channel).Resume(request, timeout=5)
    assert reply.outcome == hub_pb2.ResumeReply.UNKNOWN


async def test_an_agent_attests_only_members_of_its_jobs(
    make_host: HostMaker, hub: FakeHub, authority: Authority
) -> None:
    one, _ = await coordinator(make_host, hub)
    assert await attests(one, authority.identity("two"))
    assert not await attests(one, authority.identity("two"), "uid-of-another")
    assert not await attests(one, authority.identity("three"))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await attests(one, authority.identity("two", "two.example.com"))
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    # The heartbeat must report node two only, because the request of node three was refused.
    beat = await hub.until(lambda node, message: node == "one" and message.heartbeat.attestations)
    assert [entry.node for entry in beat.heartbeat.attestations] == ["two"]
    assert beat.heartbeat.attestations[0].age_ms < 5000


async def test_a_cancelled_call_is_released(make_host: HostMaker, hub: FakeHub, authority: Authority) -> None:
    one, _ = await coordinator(make_host, hub)
    held = one.agent.commit_coordinator._jobs["uid-of-job"].tiers[Tier.LOCAL].held
    call = asyncio.create_task(prepare(one, authority.identity("two"), seconds=3))
    await eventually(lambda: (2, 10) in held)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await eventually(lambda: not held)
