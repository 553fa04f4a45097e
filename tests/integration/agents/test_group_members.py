"""Tests of the file with the addresses of the process group, which the agent puts into the pod's folder."""

from __future__ import annotations

import json
import stat
from typing import Any

from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import FakeHub, Host, assignment, eventually

from convoy_agents.wire import hub_pb2
from convoy_crds.terms import MEMBERS_FILE

UID = "aaaa-1111"


def read(host: Host) -> Any:
    """Return the content of the file as the pod's program reads it; None before it exists."""
    file = host.target(UID) / MEMBERS_FILE
    return json.loads(file.read_text()) if file.exists() else None


def report(hub: FakeHub, host: Host, incarnation: int, address: str) -> None:
    member = hub_pb2.MemberAddress(role="trainer", replica=0, rank=0, processes=1, address=address)
    message = hub_pb2.GroupMembers(pod_uid=UID, incarnation=incarnation, members=[member])
    hub.send(host.node, group_members=message)


async def test_the_program_finds_the_newest_addresses_even_after_the_agent_crashed(
    make_host: HostMaker, hub: FakeHub
) -> None:
    host = await make_host("one")
    await host.publish(UID)
    assert read(host) is None
    launcher = await host.launcher(UID)
    await hub.report(UID, lambda report: bool(report.launcher_connected))
    report(hub, host, 3, "10.0.0.7")
    hub.send(host.node, assignment=assignment("j.rollout.0", 1, 0, [(UID, host, 1)]))
    await launcher.receive()
    found = read(host)
    assert found == {
        "incarnation": 3,
        "members": [{"role": "trainer", "replica": 0, "rank": 0, "processes": 1, "address": "10.0.0.7"}],
    }, "the file is there before the program starts"
    (own,) = (one for one in (host.settings.run_dir / "pods").iterdir() if one.is_dir())
    assert stat.S_IMODE((own / MEMBERS_FILE).stat().st_mode) == 0o444
    report(hub, host, 4, "10.0.0.8")
    await eventually(lambda: read(host)["members"][0]["address"] == "10.0.0.8")
    await hub.report(UID, lambda report: report.members_incarnation == 4)
    await host.crash()
    await host.start()
    await hub.report(UID, lambda report: report.members_incarnation == 0)
    assert read(host)["incarnation"] == 4, "the file stays until the hub has sent the addresses again"
