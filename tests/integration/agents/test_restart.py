"""Tests of an agent that continues from the state of an earlier agent."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import FakeHub, assignment
from tests.integration.agents.memory_job import JOB, MemoryJob, saved
from tests.integration.agents.test_memory import folder, job

from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint.generation import Generation, Tier

__all__ = ["folder", "job"]

UID, PEER = "aaaa-1111", "bbbb-2222"


async def test_a_restarted_agent_binds_its_sockets_and_the_pod_continues(
    make_host: HostMaker, hub: FakeHub
) -> None:
    host = await make_host("one")
    await host.publish(UID)
    launcher = await host.launcher(UID)
    await hub.report(UID, lambda report: report.launcher_connected)
    hub.send("one", assignment=assignment("job", 4, 0, [(UID, host, 1)]))
    assert (await launcher.receive())["incarnation"] == 4
    await host.crash()
    assert await launcher.ended()
    mark = len(hub.messages)
    await host.start()
    hello = await hub.until(lambda _, message: message.WhichOneof("body") == "hello", mark)
    [report] = hello.hello.pods
    assert (report.pod_uid, report.incarnation) == (UID, 4)
    # The launcher and a rank reconnect with the same path. It must lead to the new agent's socket.
    launcher = await host.launcher(UID, incarnation=4)
    launcher.send(type="rank", incarnation=4, rank=0, state="RUNNING")
    await hub.report(UID, lambda report: report.launcher_connected and bool(report.ranks), mark)
    rank = await host.rank(UID, 0, 4)
    rank.send(type="progress", step=7)
    await hub.report(UID, lambda report: report.ranks and report.ranks[0].progress.step == 7, mark)


async def test_a_restarted_coordinator_commits_without_the_hub(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    one, two = await make_host("one"), await make_host("two")
    ranks = await job.start_incarnation(1, [(UID, one), (PEER, two)])
    await ranks[1].save(10)
    port = one.agent.peer_port
    await one.crash()
    one.settings = replace(one.settings, peer_port=port)
    await one.start()
    await ranks[0].save(10)
    for rank in ranks:
        await rank.stands(Tier.PEER, 1, 10)


async def test_a_commit_and_a_later_incarnation_are_remembered(
    make_host: HostMaker, hub: FakeHub, job: MemoryJob
) -> None:
    host = await make_host("one")
    ranks = await job.start_incarnation(1, [(UID, host)])
    await saved(ranks, 1, 10, Tier.LOCAL)
    # The pod learns of a commit after the ledger. A later incarnation in between would keep it from the pod.
    await hub.report(UID, lambda report: bool(report.committed))
    hub.send("one", pick_port=hub_pb2.PickPort(pod_uid=UID, incarnation=2))
    assert (await job.launchers[UID].receive())["type"] == "pickPort"
    mark = len(hub.messages)
    await host.crash()
    await host.start()
    report = await hub.report(UID, lambda report: bool(report.committed), mark)
    assert {(one.tier, one.incarnation, one.step) for one in report.committed} == {("local", 1, 10)}
    link = await host.rank(UID, 0, 1)
    await ranks[0].save(20)
    assert await link.receive() == {"type": "refused", "incarnation": 1, "step": 20, "seen": 2}
    marks = await host.agent.memory_manager.open(JOB).inspect(lambda store: dict(store.marks))
    assert marks[Tier.LOCAL] == Generation(1, 10)


async def test_an_unreadable_state_file_loses_only_the_state(make_host: HostMaker, hub: FakeHub) -> None:
    host = await make_host("one")
    await host.publish(UID)
    await host.crash()
    [path] = (host.settings.run_dir / "state").glob("*.json")
    path.with_name(path.stem + ".memory.json").write_text(json.dumps({"assignment": {"incarnation": "x"}}))
    await host.start()
    mark = len(hub.messages)
    launcher = await host.launcher(UID, incarnation=4)
    launcher.send(type="rank", incarnation=4, rank=0, state="RUNNING")
    await hub.report(UID, lambda report: report.launcher_connected and not report.incarnation, mark)
    hub.send("one", assignment=assignment("job", 4, 0, [(UID, host, 1)]))
    await hub.report(UID, lambda report: report.incarnation == 4 and bool(report.ranks), mark)
    rank = await host.rank(UID, 0, 4)
    rank.send(type="progress", step=7)
    await hub.report(UID, lambda report: report.ranks and report.ranks[0].progress.step == 7, mark)


async def test_a_new_version_adds_its_library_and_keeps_those_of_running_pods(make_host: HostMaker) -> None:
    host = await make_host("one")
    await host.publish(UID)
    await host.stop()
    source = host.root / "image" / "convoy_workloads" / "runtime" / "added.py"
    source.write_text("NEW = 1\n")
    await host.start()
    await host.publish(PEER)
    assert not (host.target(UID) / "lib/convoy_workloads/runtime/added.py").exists()
    assert (host.target(UID) / "lib/convoy_launch.py").read_text()
    assert (host.target(PEER) / "lib/convoy_workloads/runtime/added.py").exists()
    assert len(list(host.settings.run_dir.glob("lib-*"))) == 1
