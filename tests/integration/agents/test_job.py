"""Tests of one job on two agents: its assignments, ranks and commits."""

from __future__ import annotations

from typing import Any

from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import FakeHub, Host, Pod, assignment, eventually
from tests.integration.agents.memory_job import JOB, MemoryJob, saved
from tests.integration.agents.test_memory import folder, job

from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint.generation import Tier

__all__ = ["folder", "job"]

A, B = "aaaa-1111", "bbbb-2222"


async def formed(hub: FakeHub, one: Host, two: Host) -> tuple[list[Pod], list[Pod]]:
    """Start incarnation 1 of a job with two ranks on node `one` and one rank on node `two`. Return the
    launchers and the ranks.
    """
    members = [(A, one, 2), (B, two, 1)]
    launchers = []
    for slot, (uid, host, _) in enumerate(members):
        await host.publish(uid)
        launchers.append(await host.launcher(uid))
        await hub.report(uid, lambda report: report.launcher_connected)
        hub.send(host.node, assignment=assignment("job", 1, slot, members))
        assert (await launchers[-1].receive())["incarnation"] == 1
    ranks = [await one.rank(A, 0, 1), await one.rank(A, 1, 1), await two.rank(B, 2, 1)]
    return launchers, ranks


async def test_a_launcher_gets_its_assignment_and_the_hub_gets_the_port(
    make_host: HostMaker, hub: FakeHub
) -> None:
    one = await make_host("one")
    await one.publish(A)
    launcher = await one.launcher(A)
    await hub.report(A, lambda report: report.launcher_connected and report.incarnation == 0)
    hub.send("one", pick_port=hub_pb2.PickPort(pod_uid=A, incarnation=1))
    assert await launcher.receive() == {"type": "pickPort", "incarnation": 1}
    launcher.send(type="portPicked", incarnation=1, port=31000)
    report = await hub.report(A, lambda report: report.port_incarnation == 1)
    assert report.master_port == 31000
    hub.send("one", assignment=assignment("job", 1, 0, [(A, one, 2)]))
    assert await launcher.receive() == {
        "type": "assignment",
        "incarnation": 1,
        "slot": 0,
        "rankOffset": 0,
        "processes": 2,
        "worldSize": 2,
        "masterAddr": "127.0.0.1",
        "masterPort": 29500,
        "hangSeconds": 600,
        "command": ["python", "train.py"],
        "role": "worker",
        "replica": 0,
        "job": "default/job",
        "jobUid": "uid-of-job",
        "slots": 1,
        "keyed": False,
        "jobKeyed": False,
    }
    await hub.report(A, lambda report: report.incarnation == 1)


async def test_ranks_and_their_exits_are_reported(make_host: HostMaker, hub: FakeHub) -> None:
    one, two = await make_host("one"), await make_host("two")
    launchers, ranks = await formed(hub, one, two)
    launchers[1].send(type="rank", incarnation=1, rank=2, state="STARTING")
    ranks[2].send(
        type="progress", step=5, totalSteps=9, samplesPerSecond=3.5, loss=0.25, timeMs=1700000000000
    )
    report = await hub.report(B, lambda report: bool(report.ranks) and report.ranks[0].progress.step == 5)
    rank = report.ranks[0]
    assert (rank.rank, rank.state) == (2, hub_pb2.RankReport.RUNNING)
    assert (rank.progress.total_steps, rank.progress.samples_per_second, rank.progress.loss) == (9, 3.5, 0.25)
    assert not rank.progress.metrics
    figures = {"held_out_loss": {"value": 0.5, "step": 4}, "ratio": {"value": None, "step": 5}}
    ranks[2].send(type="progress", step=6, metrics=figures)
    report = await hub.report(B, lambda report: bool(report.ranks) and report.ranks[0].progress.step == 6)
    assert [
        (one.name, one.HasField("value"), one.value, one.step) for one in report.ranks[0].progress.metrics
    ] == [
        ("held_out_loss", True, 0.5, 4),
        ("ratio", False, 0.0, 5),
    ]
    launchers[1].send(
        type="rank", incarnation=1, rank=2, state="EXITED", exitCode=0, signal=9, oom=True, stderr="x" * 5000
    )
    report = await hub.report(
        B, lambda report: report.ranks and report.ranks[0].state == hub_pb2.RankReport.EXITED
    )
    assert (report.ranks[0].signal, report.ranks[0].oom) == (9, True)
    assert len(report.ranks[0].stderr_tail) == 2048
    assert report.ranks[0].progress.step == 6
    assert len(report.ranks[0].progress.metrics) == 2


async def test_a_job_commits_while_the_hub_is_down(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    await hub.stop()
    await saved(ranks, 1, 10, Tier.LOCAL, Tier.PEER)


async def test_a_later_incarnation_refuses_the_commit(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(A, one), (B, two)])
    links = [await one.rank(A, 0, 1), await two.rank(B, 1, 1)]
    await ranks[1].save(10)
    held = one.agent.commit_coordinator._jobs[JOB].tiers[Tier.LOCAL].held
    await eventually(lambda: (1, 10) in held)
    # Slot 0's agent learns from a PickPort that incarnation 2 exists. The agent of slot 1 does not learn it.
    hub.send("one", pick_port=hub_pb2.PickPort(pod_uid=A, incarnation=2))
    refused = {"type": "refused", "incarnation": 1, "step": 10, "seen": 2}
    assert await links[1].receive() == refused
    await ranks[0].save(10)
    assert await links[0].receive() == refused
    for host in (one, two):
        assert not await host.agent.memory_manager.open(JOB).inspect(lambda store: store.records)


async def test_ranks_of_an_older_incarnation_are_cut_off(make_host: HostMaker, hub: FakeHub) -> None:
    one, two = await make_host("one"), await make_host("two")
    launchers, ranks = await formed(hub, one, two)
    hub.send("two", assignment=assignment("job", 2, 1, [(A, one, 2), (B, two, 1)]))
    assert (await launchers[1].receive())["incarnation"] == 2
    assert await ranks[2].ended()
    late = await two.rank(B, 2, 1)
    assert await late.ended()


async def test_a_reconnected_launcher_gets_the_current_assignment(make_host: HostMaker, hub: FakeHub) -> None:
    one = await make_host("one")
    await one.publish(A)
    first = await one.launcher(A)
    await hub.report(A, lambda report: report.launcher_connected)
    hub.send("one", assignment=assignment("job", 3, 0, [(A, one, 1)]))
    assert (await first.receive())["incarnation"] == 3
    first.close()
    await hub.report(A, lambda report: not report.launcher_connected and report.incarnation == 3)
    second = await one.launcher(A, incarnation=2)
    assert (await second.receive())["incarnation"] == 3
    hub.send("one", shutdown=hub_pb2.Shutdown(pod_uid=A, exit_code=7, reason="done"))
    expected: dict[str, Any] = {"type": "shutdown", "exitCode": 7, "reason": "done", "immediate": False}
    assert await second.receive() == expected
    second.close()
    third = await one.launcher(A, incarnation=3)
    assert await third.receive() == expected
