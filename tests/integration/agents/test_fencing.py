"""Tests of agents that are isolated from the hub, the API server and their peers. The fencing times are
shortened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import FakeHub, Host, Pod, assignment, eventually
from tests.unit.agents.test_isolation import Deaf

from convoy_agents import hub_client, isolation, metrics
from convoy_agents.wire import hub_pb2
from convoy_controllers.liveness import fence

A, B, C = "aaaa-1111", "bbbb-2222", "cccc-3333"
FENCE = 3.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_client, "HEARTBEAT_SECONDS", 0.1)
    monkeypatch.setattr(fence, "FENCE_SECONDS", FENCE)
    monkeypatch.setattr(fence, "QUIET_SECONDS", 0.4)
    monkeypatch.setattr(fence, "LEASE_SECONDS", 0.6)
    # The test sends messages to the launcher through the session. So the session must stay open although the
    # hub does not answer heartbeats.
    monkeypatch.setattr(hub_client, "SILENCE_SECONDS", 60.0)
    for name in ("PROBE_SECONDS", "PROBE_TIMEOUT", "ATTEST_SECONDS"):
        monkeypatch.setattr(isolation, name, 0.5)
    monkeypatch.setattr(isolation, "CHECK_SECONDS", 0.05)


@pytest.fixture
def deaf() -> Iterator[Deaf]:
    """Yield the address of an API server that drops all packets."""
    with Deaf() as address:
        yield address


async def strict_job(hub: FakeHub, one: Host, two: Host, incarnation: int = 1) -> Pod:
    """Start a Strict job with one pod on each node. Return the launcher on node `one`."""
    members = [(A, one, 1), (B, two, 1)]
    launchers = []
    for slot, (uid, host, _) in enumerate(members):
        await host.publish(uid)
        launchers.append(await host.launcher(uid))
        await hub.report(uid, lambda report: report.launcher_connected)
        hub.send(host.node, assignment=assignment("job", incarnation, slot, members, strict=True))
        assert (await launchers[-1].receive())["incarnation"] == incarnation
    one.pods.extend(launchers)
    return launchers[0]


async def unreachable_api(make_host: HostMaker, node: str, deaf: Deaf) -> Host:
    host = await make_host(node)
    await host.stop()
    host.settings = replace(host.settings, api_host="127.0.0.1", api_port=deaf.port)
    await host.start()
    return host


async def receives_nothing(hub: FakeHub, launcher: Pod, uid: str, node: str) -> None:
    """Check that the launcher has received no frame before this call. Let the hub request a port: this
    request must be the launcher's next frame.
    """
    hub.send(node, pick_port=hub_pb2.PickPort(pod_uid=uid, incarnation=9))
    assert (await launcher.receive())["type"] == "pickPort"


def silence(host: Host) -> float:
    """Return the seconds since the agent last reached the hub."""
    watch = host.agent._isolation
    return watch._clock() - watch._contacts.hub


async def test_only_the_strict_job_is_stopped_on_an_isolated_node(
    make_host: HostMaker, hub: FakeHub, deaf: Deaf
) -> None:
    one, two = await unreachable_api(make_host, "one", deaf), await make_host("two")
    launcher = await strict_job(hub, one, two)
    await one.publish(C)
    lenient = await one.launcher(C)
    await hub.report(C, lambda report: report.launcher_connected)
    hub.send("one", assignment=assignment("lenient", 1, 0, [(C, one, 1)]))
    assert (await lenient.receive())["incarnation"] == 1
    fenced = metrics.FENCED._value.get()
    await two.crash()
    hub.mute.add("one")
    shutdown = await launcher.receive()
    assert FENCE <= silence(one) < 2 * FENCE
    assert (shutdown["type"], shutdown["exitCode"], shutdown["immediate"]) == ("shutdown", 75, True)
    assert "it reached only 0 of the job's 1 other nodes" in shutdown["reason"]
    assert metrics.FENCED._value.get() == fenced + 1
    await receives_nothing(hub, lenient, C, "one")
    # The agent sends the frame once per connection, so a launcher that reconnects must get it again.
    again = await one.launcher(A, incarnation=1)
    assert await again.receive() == shutdown
    # The hub is reachable again, so a later incarnation must run normally.
    hub.mute.clear()
    await eventually(lambda: silence(one) < fence.QUIET_SECONDS)
    hub.send("one", assignment=assignment("job", 2, 0, [(A, one, 1)], strict=True))
    assert (await again.receive())["incarnation"] == 2
    await receives_nothing(hub, again, A, "one")
    assert metrics.FENCED._value.get() == fenced + 1


async def test_an_api_server_that_refuses_connections_stops_no_job(
    make_host: HostMaker, hub: FakeHub
) -> None:
    one, two = await make_host("one"), await make_host("two")
    await one.stop()
    # No process listens on port 1, so the kernel refuses connections.
    one.settings = replace(one.settings, api_host="127.0.0.1", api_port=1)
    await one.start()
    launcher = await strict_job(hub, one, two)
    await two.crash()
    hub.mute.add("one")
    await eventually(lambda: silence(one) > 2 * FENCE)
    await receives_nothing(hub, launcher, A, "one")
    assert one.agent._isolation._contacts.peers == {}


async def test_a_job_continues_while_hub_and_api_server_are_unreachable(
    make_host: HostMaker, hub: FakeHub, deaf: Deaf
) -> None:
    """Neither the hub nor the API server replies to any node. The job's nodes attest one another, so the
    job must continue.
    """
    one, two = await unreachable_api(make_host, "one", deaf), await unreachable_api(make_host, "two", deaf)
    launcher = await strict_job(hub, one, two)
    hub.mute.update(("one", "two"))
    await eventually(lambda: min(silence(one), silence(two)) > 2 * FENCE)
    await receives_nothing(hub, launcher, A, "one")
    for here, there in (("one", "two"), ("two", "one")):
        beat = await hub.until(
            lambda node, message, here=here: node == here and message.heartbeat.attestations
        )
        assert [entry.node for entry in beat.heartbeat.attestations] == [there]


async def test_a_peer_whose_plan_excludes_the_node_does_not_keep_its_ranks(
    make_host: HostMaker, hub: FakeHub, deaf: Deaf
) -> None:
    one, two = await unreachable_api(make_host, "one", deaf), await make_host("two")
    launcher = await strict_job(hub, one, two)
    hub.send("two", assignment=assignment("job", 2, 0, [(B, two, 1)], strict=True))
    await hub.report(B, lambda report: report.incarnation == 2)
    hub.mute.add("one")
    assert (await launcher.receive())["type"] == "shutdown"


async def test_an_agent_restarted_in_isolation_counts_from_its_start(
    make_host: HostMaker, hub: FakeHub, deaf: Deaf
) -> None:
    one, two = await unreachable_api(make_host, "one", deaf), await make_host("two")
    await strict_job(hub, one, two)
    await two.crash()
    hub.mute.add("one")
    await eventually(lambda: silence(one) > 0.5 * FENCE)
    await one.crash()
    await one.start()
    launcher = await one.launcher(A, incarnation=1)
    assert (await launcher.receive())["type"] == "shutdown"
    assert FENCE <= silence(one) < 2 * FENCE
