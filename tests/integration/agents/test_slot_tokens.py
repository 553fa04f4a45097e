"""Tests of access to a job's memory. An agent must serve only nodes that have a slot of the job, and a node
proves its slot with a slot token.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import Authority, FakeHub, Host, assignment, eventually
from tests.integration.agents.memory_job import JOB, MemoryJob, damage, held, state
from tests.integration.agents.test_memory import A, B, C, folder, job, saved

from convoy_agents.channels import dial
from convoy_agents.tiercheck.digest import digest
from convoy_agents.tiercheck.service import MAX_FETCHES, MAX_PUTS
from convoy_agents.wire import hub_pb2, hub_pb2_grpc, slot_tokens
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import MAX_CHUNK, Chunk, Manifest
from convoy_crds import terms

__all__ = ["folder", "job"]

OTHERS = Authority()
HELD = {(Generation(1, 10), "0"), (Generation(1, 10), "1")}


async def running(make_host: HostMaker, job: MemoryJob) -> tuple[Host, Manifest]:
    """Save step 10 of a job on two nodes in incarnation 1. Return node one and the manifest of a shard in
    its memory.
    """
    one, two = await make_host("one"), await make_host("two")
    await saved(await job.start_incarnation(1, [(A, one), (B, two)]), 1, 10)
    return one, await shard(one)


async def shard(host: Host) -> Manifest:
    job_memory = host.agent.memory_manager.get(JOB)
    assert job_memory is not None
    return await job_memory.inspect(lambda store: next(iter(store.manifests.values())))


async def code(
    host: Host, hub: FakeHub, caller: str, call: Callable[[Any], Any], replies: list[Any] | None = None
) -> str:
    """Call the Shards service of `host` as the agent of `caller`, and return the status code. If the call
    has a single reply, append the reply to `said`.
    """
    address, name = f"127.0.0.1:{host.agent.peer_port}", terms.agent_server_name(host.node)
    own = host.settings.ca_file.read_bytes()
    async with dial(address, name, own, hub.authority.identity(caller)) as channel:
        made = call(hub_pb2_grpc.ShardsStub(channel))
        if isinstance(made, grpc.aio.UnaryStreamCall):
            # Read the whole stream, because its status arrives at the end.
            with contextlib.suppress(grpc.aio.AioRpcError):
                async for _ in made:
                    pass
        elif replies is not None:
            replies.append(await made)
        return str((await made.code()).name)


def survey(slot_token: str, incarnation: int, *, member: bool) -> Callable[[Any], Any]:
    request = hub_pb2.SurveyRequest(
        job_uid=JOB, incarnation=incarnation, member=member, slot_token=slot_token
    )
    return lambda stub: stub.Survey(request, timeout=5)


def offer(slot_token: str, incarnation: int, manifest: Manifest) -> Callable[[Any], Any]:
    request = hub_pb2.OfferRequest(
        job_uid=JOB, incarnation=incarnation, manifest=manifest.text, slot_token=slot_token
    )
    return lambda stub: stub.Offer(request, timeout=5)


def fetch(slot_token: str, manifest: Manifest) -> Callable[[Any], Any]:
    return lambda stub: stub.Fetch(
        hub_pb2.FetchRequest(job_uid=JOB, id=manifest.id, slot_token=slot_token), timeout=5
    )


def put(slot_token: str, manifest: Manifest) -> Callable[[Any], Any]:
    async def pieces() -> AsyncIterator[hub_pb2.Piece]:
        yield hub_pb2.Piece(job_uid=JOB, id=manifest.id, index=0, data=b"x", slot_token=slot_token)

    return lambda stub: stub.Put(pieces(), timeout=5)


Signed = Callable[[FakeHub], str]
ANY_SLOT: dict[str, tuple[str, Signed]] = {
    "none": ("two", lambda hub: ""),
    "nonsense": ("two", lambda hub: "a.b.c"),
    "of another job": ("two", lambda hub: hub.slot_token("two", "uid-of-another", 1, 0)),
    "of another node, by that node": ("three", lambda hub: hub.slot_token("two", JOB, 1, 0)),
    "of another authority": ("two", lambda hub: FakeHub(OTHERS).slot_token("two", JOB, 1, 0)),
}


@pytest.mark.parametrize("shown", ANY_SLOT.values(), ids=ANY_SLOT)
async def test_an_invalid_slot_token_is_denied(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, shown: tuple[str, Signed]
) -> None:
    one, manifest = await running(make_host, job)
    caller, slot_token = shown[0], shown[1](hub)
    calls = [survey(slot_token, 1, member=member) for member in (True, False)]
    for call in (
        *calls,
        offer(slot_token, 1, manifest),
        fetch(slot_token, manifest),
        put(slot_token, manifest),
    ):
        assert await code(one, hub, caller, call) == "PERMISSION_DENIED"


async def test_a_valid_slot_token_allows_the_calls_a_slot_needs(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, manifest = await running(make_host, job)
    first, other = hub.slot_token("two", JOB, 1, 0), hub.slot_token("two", JOB, 1, 1)
    for call in (survey(first, 1, member=True), offer(other, 1, manifest), fetch(other, manifest)):
        assert await code(one, hub, "two", call) == "OK"


@pytest.mark.parametrize("member", [True, False])
@pytest.mark.parametrize(
    ("incarnation", "slot"), [(1, 0), (2, 1)], ids=["of an earlier one", "of another slot"]
)
async def test_only_a_later_slot_token_can_end_an_incarnation(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, member: bool, incarnation: int, slot: int
) -> None:
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    slot_token = hub.slot_token("two", JOB, incarnation, slot)
    assert await code(one, hub, "two", survey(slot_token, 2, member=member)) == "PERMISSION_DENIED"
    await saved(ranks, 1, 10)


async def test_a_node_outside_the_newest_incarnation_can_neither_read_nor_write(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    three = await make_host("three")
    one, manifest = await running(make_host, job)
    ranks = await job.form(2, [(A, one), (C, three)])
    for rank in ranks:
        for number in (await rank.restore())["shards"]:
            assert await rank.read(number) == state(10, int(number))
    left = hub.slot_token("two", JOB, 1, 1)
    for call in (fetch(left, manifest), offer(left, 2, manifest)):
        assert await code(one, hub, "two", call) == "PERMISSION_DENIED"
    replies: list[Any] = []
    assert await code(one, hub, "two", offer(left, 1, manifest), replies) == "OK"
    assert [one.decision for one in replies] == [hub_pb2.OfferReply.REFUSED]
    assert await held(one) >= HELD


async def test_idle_put_calls_do_not_block_copies_from_other_nodes(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    """A node with a valid slot token opens many Put calls and sends nothing. Copies from other nodes must
    still succeed.
    """
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(ranks, 1, 10)
    mine = hub.slot_token("three", JOB, 1, 7)
    parts = (b"x" * MAX_CHUNK, b"y")
    length = sum(map(len, parts))
    endless = Manifest(
        Generation(1, 20), "7", tuple(Chunk(digest(part), len(part)) for part in parts), length
    )
    address, name = f"127.0.0.1:{one.agent.peer_port}", terms.agent_server_name("one")
    own, limits = one.settings.ca_file.read_bytes(), one.agent._peer_server._services.shards._puts
    async with dial(address, name, own, hub.authority.identity("three")) as channel:
        stub = hub_pb2_grpc.ShardsStub(channel)
        silent = [stub.Put() for _ in range(2 * MAX_PUTS)]
        for call in silent:
            await call.wait_for_connection()
        assert (await offer(mine, 1, endless)(stub)).decision == hub_pb2.OfferReply.WANTED
        stalled = [stub.Put() for _ in range(2 * MAX_PUTS)]
        for call in stalled:
            piece = hub_pb2.Piece(job_uid=JOB, id=endless.id, index=0, data=parts[0], slot_token=mine)
            await call.write(piece)
        await eventually(lambda: limits.full("three") and not limits.full("two"))
        await saved(ranks, 1, 20)
        assert limits.full("three")
        for call in (*silent, *stalled):
            call.cancel()


async def test_a_copy_ends_when_the_sender_s_certificate_expires(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two = await make_host("one"), await make_host("two")
    await saved(await job.start_incarnation(1, [(A, one), (B, two)]), 1, 10)
    mine, parts = hub.slot_token("three", JOB, 1, 7), (b"x" * MAX_CHUNK, b"y")
    chunks = tuple(Chunk(digest(part), len(part)) for part in parts)
    copy = Manifest(Generation(1, 20), "7", chunks, sum(map(len, parts)))
    stolen = hub.authority.identity("three", seconds=3)
    address, name = f"127.0.0.1:{one.agent.peer_port}", terms.agent_server_name("one")
    async with dial(address, name, one.settings.ca_file.read_bytes(), stolen) as channel:
        stub = hub_pb2_grpc.ShardsStub(channel)
        assert (await offer(mine, 1, copy)(stub)).decision == hub_pb2.OfferReply.WANTED
        call = stub.Put()
        await call.write(hub_pb2.Piece(job_uid=JOB, id=copy.id, index=0, data=parts[0], slot_token=mine))
        limits = one.agent._peer_server._services.shards._puts
        await eventually(lambda: "three" in limits._nodes and limits._nodes["three"].users == 1)
        await eventually(lambda: time.time() > stolen.expires)
        await call.write(hub_pb2.Piece(index=1, data=parts[1]))
        assert await call.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_fetch_ends_when_the_reader_s_certificate_expires(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, manifest = await running(make_host, job)
    stolen = hub.authority.identity("two", seconds=3)
    address, name = f"127.0.0.1:{one.agent.peer_port}", terms.agent_server_name("one")
    async with dial(address, name, one.settings.ca_file.read_bytes(), stolen) as channel:
        request = hub_pb2.FetchRequest(
            job_uid=JOB, id=manifest.id, chunks=[0, 1, 2] * 20, slot_token=hub.slot_token("two", JOB, 1, 1)
        )
        call = hub_pb2_grpc.ShardsStub(channel).Fetch(request, timeout=60)
        assert await call.read() != grpc.aio.EOF
        await eventually(lambda: time.time() > stolen.expires)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            while await call.read() != grpc.aio.EOF:
                pass
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_idle_readers_do_not_block_other_readers(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, manifest = await running(make_host, job)
    address, name = f"127.0.0.1:{one.agent.peer_port}", terms.agent_server_name("one")
    own = one.settings.ca_file.read_bytes()

    def fetch_all(node: str) -> Any:
        request = hub_pb2.FetchRequest(
            job_uid=JOB, id=manifest.id, chunks=[0, 1, 2] * 20, slot_token=hub.slot_token(node, JOB, 1, 1)
        )
        return hub_pb2_grpc.ShardsStub(channels[node]).Fetch(request, timeout=60)

    channels = {node: dial(address, name, own, hub.authority.identity(node)) for node in ("two", "three")}
    try:
        idle = [fetch_all("three") for _ in range(2 * MAX_FETCHES)]
        await eventually(lambda: one.agent._peer_server._services.shards._fetches.full("three"))
        assert len([piece async for piece in fetch_all("two")]) == 60
        for call in idle:
            call.cancel()
    finally:
        for channel in channels.values():
            await channel.close()


async def test_held_jobs_are_reported_with_slot_tokens_of_a_renewed_authority(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two = await make_host("one"), await make_host("two")
    await saved(await job.start_incarnation(1, [(A, one), (B, two)]), 1, 10)
    plan = assignment("job", 1, 1, [(A, one, 1), (B, two, 1)])
    plan.memory.copies = 1
    plan.slot_token = FakeHub(OTHERS).slot_token("two", JOB, 1, 1)

    def renewed(node: str, message: Any) -> bool:
        return any(one.slot_token == plan.slot_token for one in message.held_jobs.jobs)

    hub.send("two", assignment=plan)
    await hub.until(renewed)
    received = await hub.report(
        B, lambda report: report.authority == slot_tokens.signing_key_id(plan.slot_token)
    )
    assert received.incarnation == 1
    count = len(hub.messages)
    await two.stop()
    await two.start()
    again = await hub.until(lambda node, message: node == "two" and message.HasField("hello"), count)
    assert renewed("two", SimpleNamespace(held_jobs=again.hello.held_jobs))


async def test_damage_is_repaired_with_the_assignment_of_the_newest_pod(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    """Pods of two incarnations of the job are on the node. The scrubber must use the assignment of the
    newer incarnation, because other nodes refuse calls with the older one.
    """
    one, two = await make_host("one"), await make_host("two")
    await saved(await job.start_incarnation(1, [(A, one), (B, two)]), 1, 10)
    ranks = await job.start_incarnation(2, [(C, one), (B, two)])
    await saved(ranks, 2, 20)
    assert [pod.assignment.incarnation for pod in one.agent.pods if pod.assignment] == [1, 2]
    wanted = {(Generation(2, 20), "0"), (Generation(2, 20), "1")}
    await damage(one, "1", Generation(2, 20))
    await one.agent.scrubber.scrub()
    assert await held(one) >= wanted
