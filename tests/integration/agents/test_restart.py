"""A new agent takes over what an earlier one left."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import FakeHub, assignment

from convoy_agents.wire import hub_pb2

UID, PEER = "aaaa-1111", "bbbb-2222"


async def test_sockets_are_bound_anew_and_the_pod_goes_on(make_host: HostMaker, hub: FakeHub) -> None:
    host = await make_host("one")
    await host.publish(UID)
    launcher = await host.launcher(UID)
    await hub.report(UID, lambda report: report.launcher_connected)
    hub.send("one", assignment=assignment("job", 4, 0, [(UID, host, 1)]))
    assert (await launcher.hear())["incarnation"] == 4
    await host.crash()
    assert await launcher.ended()
    mark = len(hub.heard)
    await host.start()
    hello = await hub.until(lambda _, said: said.WhichOneof("body") == "hello", mark)
    [report] = hello.hello.pods
    assert (report.pod_uid, report.incarnation) == (UID, 4)
    # The launcher, and a rank, come back on the same path, which shows the new socket.
    launcher = await host.launcher(UID, incarnation=4)
    launcher.say(type="rank", incarnation=4, rank=0, state="RUNNING")
    await hub.report(UID, lambda report: report.launcher_connected and bool(report.ranks), mark)
    rank = await host.rank(UID, 0, 4)
    rank.say(type="progress", step=7)
    await hub.report(UID, lambda report: report.ranks and report.ranks[0].progress.step == 7, mark)


async def test_a_restarted_coordinator_commits_without_the_hub(make_host: HostMaker, hub: FakeHub) -> None:
    one, two = await make_host("one"), await make_host("two")
    members = [(UID, one, 1), (PEER, two, 1)]
    for slot, (uid, host, _) in enumerate(members):
        await host.publish(uid)
        launcher = await host.launcher(uid)
        await hub.report(uid, lambda report: report.launcher_connected)
        hub.send(host.node, assignment=assignment("job", 1, slot, members))
        await launcher.hear()
    far = await two.rank(PEER, 1, 1)
    far.say(type="prepared", incarnation=1, step=10, parent=[1, 5])
    port = one.agent.peer_port
    await one.crash()
    one.settings = replace(one.settings, peer_port=port)
    await one.start()
    near = await one.rank(UID, 0, 1)
    near.say(type="prepared", incarnation=1, step=10, parent=[1, 5])
    assert (await near.hear())["type"] == "commit"
    near.say(type="recorded", incarnation=1, step=10)
    for rank in (near, far):
        assert await rank.hear() == {"type": "committed", "tier": "remote", "incarnation": 1, "step": 10}


async def test_a_commit_and_a_later_incarnation_are_remembered(make_host: HostMaker, hub: FakeHub) -> None:
    host = await make_host("one")
    await host.publish(UID)
    launcher = await host.launcher(UID)
    await hub.report(UID, lambda report: report.launcher_connected)
    hub.send("one", assignment=assignment("job", 1, 0, [(UID, host, 1)]))
    await launcher.hear()
    rank = await host.rank(UID, 0, 1)
    rank.say(type="prepared", incarnation=1, step=10, parent=None)
    await rank.hear()
    rank.say(type="recorded", incarnation=1, step=10)
    assert (await rank.hear())["type"] == "committed"
    hub.send("one", pick_port=hub_pb2.PickPort(pod_uid=UID, incarnation=2))
    assert (await launcher.hear())["type"] == "pickPort"
    mark = len(hub.heard)
    await host.crash()
    await host.start()
    report = await hub.report(UID, lambda report: bool(report.committed), mark)
    assert report.committed[0].step == 10
    rank = await host.rank(UID, 0, 1)
    rank.say(type="prepared", incarnation=1, step=20, parent=None)
    assert await rank.hear() == {"type": "refused", "incarnation": 1, "step": 20, "seen": 2}


async def test_an_unreadable_memory_costs_the_memory_only(make_host: HostMaker, hub: FakeHub) -> None:
    host = await make_host("one")
    await host.publish(UID)
    await host.crash()
    [path] = (host.settings.run_dir / "state").glob("*.json")
    path.with_name(path.stem + ".memory.json").write_text(json.dumps({"assignment": {"incarnation": "x"}}))
    await host.start()
    mark = len(hub.heard)
    launcher = await host.launcher(UID, incarnation=4)
    launcher.say(type="rank", incarnation=4, rank=0, state="RUNNING")
    await hub.report(UID, lambda report: report.launcher_connected and not report.incarnation, mark)
    hub.send("one", assignment=assignment("job", 4, 0, [(UID, host, 1)]))
    await hub.report(UID, lambda report: report.incarnation == 4 and bool(report.ranks), mark)
    rank = await host.rank(UID, 0, 4)
    rank.say(type="prepared", incarnation=4, step=10, parent=None)
    assert await rank.hear() == {"type": "commit", "incarnation": 4, "step": 10}


async def test_a_new_version_brings_its_library_and_leaves_running_pods_theirs(make_host: HostMaker) -> None:
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
