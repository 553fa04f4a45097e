"""Tests of the file with the key of an incarnation, which the agent puts into the pod's folder."""

from __future__ import annotations

import stat
from typing import Any

from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import FakeHub, Host, assignment, eventually

from convoy_workloads.runtime.incarnation_key import VARIABLE, read

A, B = "aaaa-1111", "bbbb-2222"
FIRST, SECOND = bytes(range(32)), bytes(range(32, 64))


def key_of(host: Host, uid: str) -> bytes | None:
    """Return the key as a rank of the pod reads it, through the pod's mount."""
    file = host.target(uid) / "incarnation.key"
    return read({VARIABLE: str(file)}) if file.exists() else None


def assign(hub: FakeHub, hosts: list[tuple[str, Host, int]], incarnation: int, key: bytes) -> None:
    for slot, (_, host, _) in enumerate(hosts):
        message: Any = assignment("j", incarnation, slot, hosts)
        message.key = key
        hub.send(host.node, assignment=message)


async def test_all_pods_have_the_key_of_their_incarnation(make_host: HostMaker, hub: FakeHub) -> None:
    one, two = await make_host("one"), await make_host("two")
    hosts = [(A, one, 1), (B, two, 1)]
    for uid, host, _ in hosts:
        await host.publish(uid)
        assert key_of(host, uid) is None
        await hub.report(uid, lambda report: True)
    assign(hub, hosts, 1, FIRST)
    await eventually(lambda: key_of(one, A) == key_of(two, B) == FIRST)
    assign(hub, hosts, 2, SECOND)
    await eventually(lambda: key_of(one, A) == key_of(two, B) == SECOND)


async def test_the_launcher_gets_its_assignment_after_the_key(make_host: HostMaker, hub: FakeHub) -> None:
    host = await make_host("one")
    await host.publish(A)
    launcher = await host.launcher(A)
    await hub.report(A, lambda report: bool(report.launcher_connected))
    for incarnation, key in ((1, FIRST), (2, SECOND)):
        assign(hub, [(A, host, 1)], incarnation, key)
        frame = await launcher.receive()
        assert (frame["incarnation"], key_of(host, A)) == (incarnation, key)
        assert key.hex() not in str(frame)


async def test_the_key_is_in_no_other_file_and_outlives_the_agent(make_host: HostMaker, hub: FakeHub) -> None:
    host = await make_host("one")
    await host.publish(A)
    await hub.report(A, lambda report: True)
    assign(hub, [(A, host, 1)], 1, FIRST)
    await eventually(lambda: key_of(host, A) == FIRST)
    pods = host.settings.run_dir / "pods"
    (own,) = (one for one in pods.iterdir() if one.is_dir())
    assert stat.S_IMODE(pods.stat().st_mode) == 0o700, "other users of the node cannot reach it"
    assert stat.S_IMODE((own / "incarnation.key").stat().st_mode) == 0o444
    state = host.settings.run_dir / "state"
    for path in state.iterdir():
        text = path.read_bytes()
        assert FIRST not in text and FIRST.hex().encode() not in text
    await host.crash()
    await host.start()
    assert host.agent.pods.get(A) is not None and key_of(host, A) == FIRST
    await host.unpublish(A)
    assert not own.exists()
