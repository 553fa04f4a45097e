"""Tests of a node that was cut off from the network while its job continued on other nodes. The votes and
commits of the node's earlier incarnation must have no effect.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import FakeHub, Host, eventually
from tests.integration.agents.memory_job import JOB, MemoryJob, Rank, reads, saved, state
from tests.integration.agents.test_memory import A, B, C, folder, job
from tests.unit.agents.test_isolation import Deaf

from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint.generation import Generation, Tier

__all__ = ["folder", "job"]

BEFORE = {"0": state(10, 0), "1": state(10, 1)}
"""The bytes by shard that were saved before the partition."""


@pytest.fixture
def deaf() -> Iterator[Deaf]:
    with Deaf() as address:
        yield address


def committed(hub: FakeHub) -> set[tuple[int, int]]:
    """Return all (incarnation, step) pairs that any agent has reported as committed."""
    reports = [
        report
        for _, message in hub.messages
        for report in (message.hello.pods if message.HasField("hello") else [message.pod])
    ]
    return {(commit.incarnation, commit.step) for one in reports for commit in one.committed}


async def records(host: Host) -> set[Generation]:
    """Return the generations whose records are in a node's memory."""
    return await host.agent.memory_manager.open(JOB).inspect(lambda store: set(store.records))


async def start_next_incarnation(job: MemoryJob, members: list[tuple[str, Host]]) -> list[Rank]:
    """Start incarnation 2 on `members`, and check that its ranks restore the state BEFORE."""
    ranks = await job.form(2, members)
    assert await reads(ranks) == [BEFORE, BEFORE]
    for rank in ranks:
        await rank.request(type="restored")
        await rank.reserve()
    return ranks


async def test_a_save_prepared_before_isolation_is_never_committed(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob, deaf: Deaf
) -> None:
    one, two, three = [await make_host(node) for node in ("one", "two", "three")]
    old = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(old, 1, 10, Tier.LOCAL, Tier.PEER)
    first, zombie = await one.rank(A, 0, 1), await two.rank(B, 1, 1)

    def link(address: str) -> None:
        hub.send("two", peer_moved=hub_pb2.PeerMoved(pod_uid=B, node="one", peer_address=address))

    link(f"127.0.0.1:{deaf.port}")
    await hub.report(
        B, lambda report: f"127.0.0.1:{deaf.port}" in [place.peer_address for place in report.peers]
    )
    for rank in old:
        assert (await rank.save(20))["type"] == "sealed"
    # The job continues on nodes one and three.
    new = await start_next_incarnation(job, [(A, one), (C, three)])
    assert await first.ended()
    # The partition ends. The agent of the earlier incarnation repeats its request for step 20, and then
    # requests the commit of step 30.
    link(one.peer_address)
    refused = {"type": "refused", "incarnation": 1, "seen": 2}
    assert await zombie.receive() == {**refused, "step": 20}
    await old[1].save(30)
    assert await zombie.receive() == {**refused, "step": 30}
    await saved(new, 2, 15, Tier.LOCAL, Tier.PEER)
    await hub.report(C, lambda report: bool(report.committed))
    assert committed(hub) == {(1, 10), (2, 15)}
    for host in (one, two, three):
        assert not await records(host) & {Generation(1, 20), Generation(1, 30)}


async def test_a_commit_of_an_isolated_coordinator_is_never_restored(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    """The isolated coordinator has received slot 1's vote for step 20. After incarnation 2 has started on
    other nodes, slot 0 votes too, and the coordinator commits step 20. No rank may restore this step.
    """
    one, two, three = [await make_host(node) for node in ("one", "two", "three")]
    old = await job.start_incarnation(1, [(A, one), (B, two)])
    await saved(old, 1, 10, Tier.LOCAL, Tier.PEER)
    await old[1].save(20)
    held = one.agent.commit_coordinator._jobs[JOB].tiers[Tier.LOCAL].held
    await eventually(lambda: (1, 20) in held)
    new = await start_next_incarnation(job, [(B, two), (C, three)])
    await old[0].save(20)
    await old[0].stands(Tier.LOCAL, 1, 20)
    # The nodes of incarnation 2 refuse the record and the copies of step 20.
    await saved(new, 2, 15, Tier.LOCAL, Tier.PEER)
    for host in (two, three):
        assert Generation(1, 20) not in await records(host)
    # The nodes of incarnation 2 refuse copies from the isolated node. Each save of its rank therefore keeps
    # its buffer, until no buffer is left.
    assert old[0].stand["marks"][Tier.PEER.value] == [1, 10]
    await old[0].until(lambda stand: not stand["buffer"])
    # Step 20 of incarnation 1 has a record and is the highest step, but it must not be restored.
    last = await job.form(3, [(B, two), (C, three)], holders=[one])
    for rank in last:
        assert (await rank.restore())["generation"] == [2, 15]
