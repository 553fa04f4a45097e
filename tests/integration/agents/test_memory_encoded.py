"""Tests of transfers of shards between agents. The sender may encode chunks only if the receiver supports
the encoding.
"""

from __future__ import annotations

import pytest
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import FakeHub, Host
from tests.integration.agents.memory_job import JOB, SIZE, MemoryJob, state, travelled
from tests.integration.agents.test_memory import A, B, C, folder, job, restored, saved

from convoy_agents.channels import dial
from convoy_agents.tiercheck import peer_transfer, planes, service
from convoy_agents.wire import hub_pb2, hub_pb2_grpc
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import MAX_CHUNK
from convoy_crds import terms

__all__ = ["folder", "job"]
LENGTHS = [MAX_CHUNK, MAX_CHUNK, SIZE - 2 * MAX_CHUNK]


async def fetched(host: Host, hub: FakeHub, node: str, *encodings: int) -> list[bytes]:
    """Fetch shard 0 from `host` as the agent of `node`, which supports these encodings. Return the chunks
    as they were sent.
    """
    job_memory = host.agent.memory_manager.get(JOB)
    assert job_memory is not None
    (key,) = await job_memory.inspect(
        lambda store: store.sealed_generations(["0"], 1)[Generation(1, 10)].values()
    )
    address, name = f"127.0.0.1:{host.agent.peer_port}", terms.agent_server_name(host.node)
    async with dial(
        address, name, host.settings.ca_file.read_bytes(), hub.authority.identity(node)
    ) as channel:
        request = hub_pb2.FetchRequest(
            job_uid=JOB,
            id=key,
            chunks=[0, 1, 2],
            encodings=encodings,  # type: ignore[arg-type]
            slot_token=hub.slot_token(node, JOB, 1, 1),
        )
        call = hub_pb2_grpc.ShardsStub(channel).Fetch(request, timeout=10)
        return [piece.data async for piece in call]


async def test_a_node_sends_only_encodings_the_requester_supports(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two = await make_host("one"), await make_host("two")
    await saved(await job.start_incarnation(1, [(A, one), (B, two)]), 1, 10)
    # The number 7 stands for an encoding that this agent does not know.
    for encodings in ((), (hub_pb2.Piece.PLAIN, 7)):
        pieces = await fetched(one, hub, "two", *encodings)
        assert list(map(len, pieces)) == LENGTHS and b"".join(pieces) == state(10, 0)
    # The first transfer to a node is always encoded, because the agent must measure how fast it encodes.
    pieces = await fetched(one, hub, "three", hub_pb2.Piece.PLANES, 7)
    assert len(pieces[0]) < LENGTHS[0]
    whole = [planes.unpack(piece, length) for piece, length in zip(pieces, LENGTHS, strict=True)]
    assert b"".join(whole) == state(10, 0)


@pytest.mark.parametrize("understood", [True, False])
async def test_copies_and_restores_are_equal_with_and_without_encoding(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, monkeypatch: pytest.MonkeyPatch, understood: bool
) -> None:
    if not understood:
        monkeypatch.setattr(peer_transfer, "ENCODINGS", ())
        monkeypatch.setattr(service, "ENCODINGS", ())
    one, two, three = [await make_host(name) for name in ("one", "two", "three")]
    before = travelled("peer")
    await saved(await job.start_incarnation(1, [(A, one), (B, two)]), 1, 10)
    await two.stop()
    for shards in await restored(await job.form(2, [(A, one), (C, three)])):
        assert shards == {"0": state(10, 0), "1": state(10, 1)}
    went = {kind: total - before[kind] for kind, total in travelled("peer").items()}
    assert went["raw"] >= 2 * SIZE and (went["sent"] < went["raw"]) == understood
