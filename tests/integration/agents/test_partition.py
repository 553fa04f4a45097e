"""What a node says that was cut off while the job went on without it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import FakeHub, Host, Pod, assignment, eventually
from tests.unit.agents.test_isolation import Deaf

from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint.generation import Tier

A, B, C = "aaaa-1111", "bbbb-2222", "cccc-3333"


@pytest.fixture
def deaf() -> Iterator[Deaf]:
    with Deaf() as address:
        yield address


async def up(hub: FakeHub, host: Host, uid: str, plan: Any) -> tuple[Pod, Pod]:
    """Launcher and rank of a pod that has heard its assignment."""
    await host.publish(uid)
    launcher = await host.launcher(uid)
    await hub.report(uid, lambda report: report.launcher_connected)
    hub.send(host.node, assignment=plan)
    assert (await launcher.hear())["incarnation"] == plan.incarnation
    return launcher, await host.rank(uid, plan.slot, plan.incarnation)


def prepared(rank: Pod, incarnation: int, step: int) -> None:
    rank.say(type="prepared", incarnation=incarnation, step=step, parent=[1, 5])


def committed(hub: FakeHub) -> set[tuple[int, int]]:
    """All generations that any agent has ever reported as committed."""
    reports = [
        report
        for _, said in hub.heard
        for report in (said.hello.pods if said.HasField("hello") else [said.pod])
    ]
    return {(commit.incarnation, commit.step) for one in reports for commit in one.committed}


async def test_what_a_node_prepared_before_it_was_cut_off_is_never_committed_after(
    make_host: HostMaker, hub: FakeHub, deaf: Deaf
) -> None:
    one, two, three = [await make_host(node) for node in ("one", "two", "three")]
    old = [(A, one, 1), (B, two, 1)]
    launcher, first = await up(hub, one, A, assignment("job", 1, 0, old))
    _, zombie = await up(hub, two, B, assignment("job", 1, 1, old))
    whole = f"127.0.0.1:{one.agent.peer_port}"

    def link(address: str) -> None:
        hub.send("two", peer_moved=hub_pb2.PeerMoved(pod_uid=B, node="one", peer_address=address))

    link(f"127.0.0.1:{deaf.port}")
    await hub.report(
        B, lambda report: [one.peer_address for one in report.asks] == [f"127.0.0.1:{deaf.port}"]
    )
    for rank in (first, zombie):
        prepared(rank, 1, 10)
    # The job goes on with a third node instead.
    new = [(A, one, 1), (C, three, 1)]
    hub.send("one", assignment=assignment("job", 2, 0, new))
    assert (await launcher.hear())["incarnation"] == 2
    _, far = await up(hub, three, C, assignment("job", 2, 1, new))
    near = await one.rank(A, 0, 2)
    # Healed, its agent asks again, and again for what its ranks save later.
    link(whole)
    refused = {"type": "refused", "incarnation": 1, "seen": 2}
    assert await zombie.hear() == {**refused, "step": 10}
    prepared(zombie, 1, 20)
    assert await zombie.hear() == {**refused, "step": 20}
    # Rank 0 of the old incarnation was asked for no record before its line was cut.
    assert await first.reader.read() == b""
    for rank in (near, far):
        prepared(rank, 2, 12)
    assert await near.hear() == {"type": "commit", "incarnation": 2, "step": 12}
    near.say(type="recorded", incarnation=2, step=12)
    for rank in (near, far):
        assert await rank.hear() == {"type": "committed", "tier": "remote", "incarnation": 2, "step": 12}
    await hub.report(C, lambda report: bool(report.committed))
    assert committed(hub) == {(2, 12)}


async def test_a_coordinator_that_was_cut_off_gets_no_voice_of_those_that_went_on(
    make_host: HostMaker, hub: FakeHub
) -> None:
    """Slot 0 is on the node that is left behind; it would write the record if slot 1 were prepared."""
    one, two, three = [await make_host(node) for node in ("one", "two", "three")]
    old = [(A, one, 1), (B, two, 1)]
    _, zombie = await up(hub, one, A, assignment("job", 1, 0, old))
    launcher, second = await up(hub, two, B, assignment("job", 1, 1, old))
    prepared(second, 1, 10)
    held = one.agent.desk._jobs["uid-of-job"].lines[Tier.REMOTE].held
    await eventually(lambda: (1, 10) in held)
    new = [(B, two, 1), (C, three, 1)]
    hub.send("two", assignment=assignment("job", 2, 0, new))
    assert (await launcher.hear())["incarnation"] == 2
    assert await second.ended()
    await eventually(lambda: not held)
    prepared(zombie, 1, 10)
    prepared(zombie, 1, 20)
    # Slot 1's voice is gone with its incarnation: what the zombie hears next is that it is outdated.
    hub.send("one", pick_port=hub_pb2.PickPort(pod_uid=A, incarnation=2))
    heard = [await zombie.hear() for _ in range(2)]
    assert {(said["type"], said["step"]) for said in heard} == {("refused", 10), ("refused", 20)}
    assert committed(hub) == set()
