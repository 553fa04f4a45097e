"""Tests of an agent's session with its hub, and of an agent whose hub is unreachable."""

from __future__ import annotations

import asyncio
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import Authority, FakeHub, Host, assignment, eventually

from convoy_agents import hub_client
from convoy_agents.enrol import EnrolError, Enrolment
from convoy_agents.wire import hub_pb2
from convoy_crds import terms

UID = "aaaa-1111"


def kind(wanted: str) -> Any:
    return lambda _, message: message.WhichOneof("body") == wanted


async def test_hello_names_node_peer_and_pods_and_heartbeats_follow(
    make_host: HostMaker, hub: FakeHub
) -> None:
    host = await make_host("one")
    hello = (await hub.until(kind("hello"))).hello
    assert (hello.node, hello.peer_address) == ("one", f"127.0.0.1:{host.agent.peer_port}")
    assert hello.boot_id
    first = await hub.until(kind("heartbeat"))
    second = await hub.until(kind("heartbeat"), hub.messages.index(("one", first)) + 1)
    gap = second.heartbeat.sent_unix_ms - first.heartbeat.sent_unix_ms
    assert 900 <= gap <= 3000


async def test_an_agent_reconnects_and_sends_its_full_state(make_host: HostMaker, hub: FakeHub) -> None:
    host = await make_host("one")
    await hub.until(kind("hello"))
    hub.hang_up("one")
    mark = len(hub.messages)
    await host.publish(UID)
    hello = await hub.until(kind("hello"), mark)
    await hub.report(UID, lambda report: True, mark)
    assert hello.hello.boot_id == hub.messages[0][1].hello.boot_id


async def test_an_agent_leaves_a_hub_that_does_not_reply_to_heartbeats(
    make_host: HostMaker, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_client, "HEARTBEAT_SECONDS", 0.1)
    monkeypatch.setattr(hub_client, "SILENCE_SECONDS", 2.0)
    await make_host("one")
    await hub.until(kind("hello"))
    first = (await hub.until(kind("heartbeat"))).heartbeat.sent_unix_ms
    await hub.until(lambda _, message: message.heartbeat.sent_unix_ms > first + 4000)
    assert hub.sessions == 1
    hub.mute.add("one")
    await hub.until(kind("hello"), len(hub.messages))
    assert hub.sessions == 2


async def test_an_agent_follows_a_redirect_to_the_leader(
    make_host: HostMaker, hub: FakeHub, authority: Authority
) -> None:
    leader = FakeHub(authority)
    await leader.start()
    try:
        hub.redirect_to = ["", f"127.0.0.1:{leader.session_port}"]
        await make_host("one")
        await leader.until(kind("hello"))
        assert hub.sessions == 0
        # The hub may also send a redirect during an established session. The agent must follow it.
        leader.send("one", redirect=hub_pb2.Redirect(address=f"127.0.0.1:{hub.session_port}"))
        await hub.until(kind("hello"))
    finally:
        await leader.stop()


async def test_an_unreachable_leader_is_reported_to_the_next_hub(
    make_host: HostMaker, hub: FakeHub, authority: Authority
) -> None:
    leader = FakeHub(authority)
    await leader.start()
    address = f"127.0.0.1:{leader.session_port}"
    hub.redirect_to = [address, address]
    await make_host("one")
    assert not (await leader.until(kind("hello"))).hello.unreachable
    await leader.stop()
    # The Service now leads to another replica, which redirects the agent to the dead leader. The agent must
    # report that address as unreachable.
    hello = (await hub.until(kind("hello"))).hello
    assert hello.unreachable == address


async def test_a_redirect_loop_is_followed_with_back_off(
    make_host: HostMaker, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("convoy_agents.backoff.Backoff.next", lambda self: pauses.append(1) or 0.01)
    hub.redirect_to = [f"127.0.0.1:{hub.session_port}"] * 8
    await make_host("one")
    await hub.until(kind("hello"))
    assert len(pauses) == 3  # the agent follows five redirects without a pause, and three after a pause


async def test_a_planned_exit_sends_goodbye(make_host: HostMaker, hub: FakeHub) -> None:
    host = await make_host("one")
    await hub.until(kind("heartbeat"))
    await host.stop()
    assert (await hub.until(kind("goodbye"))).goodbye.reason == "test"
    assert not (host.settings.kubelet_dir / "plugins_registry" / f"{terms.CSI_DRIVER}-reg.sock").exists()


async def test_pods_start_and_leave_without_a_hub(make_host: HostMaker, hub: FakeHub) -> None:
    await hub.stop()
    host = await make_host("one")
    await host.publish(UID)
    assert await host.launcher(UID)
    await host.unpublish(UID)
    assert not host.target(UID).exists()
    began = asyncio.get_running_loop().time()
    await host.stop()
    assert asyncio.get_running_loop().time() - began < 2


async def test_progress_is_batched_and_exits_are_sent_immediately(make_host: HostMaker, hub: FakeHub) -> None:
    host = await make_host("one")
    await host.publish(UID)
    launcher = await host.launcher(UID, incarnation=1)
    await hub.report(UID, lambda report: report.launcher_connected)
    hub.send("one", assignment=assignment("job", 1, 0, [(UID, host, 1)]))
    await hub.report(UID, lambda report: report.incarnation == 1)
    rank = await host.rank(UID, 0, 1)
    mark = len(hub.messages)
    began = asyncio.get_running_loop().time()
    for step in range(1, 151):
        rank.send(type="progress", step=step)
    await hub.report(UID, lambda report: report.ranks and report.ranks[0].progress.step == 150, mark)
    seconds = asyncio.get_running_loop().time() - began
    reports = [message for _, message in hub.messages[mark:] if message.WhichOneof("body") == "pod"]
    # The agent sends one report for the change to RUNNING, and then at most one per second.
    assert len(reports) <= 2 + seconds
    rank.send(type="progress", step=151)
    began = asyncio.get_running_loop().time()
    launcher.send(type="rank", incarnation=1, rank=0, state="EXITED", exitCode=1)
    await hub.report(UID, lambda report: report.ranks and report.ranks[0].exit_code == 1, mark)
    assert asyncio.get_running_loop().time() - began < 0.9


async def test_a_certificate_is_renewed_before_its_expiry(make_host: HostMaker, hub: FakeHub) -> None:
    hub.certificate_seconds = 4.0
    host = await make_host("one")
    first = await host.agent.enrolment.ready()
    await eventually(lambda: hub.enrolments >= 2)
    await eventually(lambda: host.agent.enrolment.current not in (None, first))
    second = await host.agent.enrolment.ready()
    assert first.key != second.key
    assert "PRIVATE" not in repr(second)


@pytest.mark.parametrize("fault", ["token", "node", "ca", "no ca"])
async def test_an_enrolment_error_names_the_cause(
    tmp_path: Path, hub: FakeHub, authority: Authority, fault: str
) -> None:
    token, authorities = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("junk" if fault == "token" else "token-of-two" if fault == "node" else "token-of-one")
    authorities.write_bytes({"ca": Authority().pem, "no ca": b""}.get(fault, authority.pem))
    enrolment = Enrolment("one", f"127.0.0.1:{hub.enrol_port}", token, authorities)
    with pytest.raises((EnrolError, grpc.aio.AioRpcError)) as caught:
        await enrolment.enrol()
    expected = {
        "token": "the token was not accepted",
        "node": "the token belongs to node 'two'",
        "ca": "SSL_ERROR_SSL",
        "no ca": "contains no PEM certificate",
    }[fault]
    assert expected in str(caught.value)
    assert enrolment.current is None


async def test_a_request_names_the_node_s_agent(tmp_path: Path, hub: FakeHub, authority: Authority) -> None:
    token, authorities = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("token-of-one")
    authorities.write_bytes(authority.pem)
    identity = await Enrolment("one", f"127.0.0.1:{hub.enrol_port}", token, authorities).enrol()
    names = x509.load_pem_x509_certificate(identity.certificate).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert names.value.get_values_for_type(x509.DNSName) == ["one.agents.convoy.dev"]


async def test_health_and_metrics_are_served(make_host: HostMaker, hub: FakeHub) -> None:
    host = await make_host("one")
    await host.publish(UID)
    first = await hub.until(kind("heartbeat"))
    # When the agent sends the next heartbeat, it has received the reply to the first one. The metrics below
    # need this reply.
    await hub.until(kind("heartbeat"), hub.messages.index(("one", first)) + 1)
    assert await _get(host, "/healthz") == (200, "ok\n")
    assert await _get(host, "/readyz") == (200, "ok\n")
    assert (await _get(host, "/secrets"))[0] == 404
    status, text = await _get(host, "/metrics")
    assert status == 200
    assert "convoy_agent_pods 1.0" in text
    assert "convoy_agent_session_up 1.0" in text
    assert 'convoy_agent_build_info{version="' in text
    assert 'convoy_agent_ranks{state="RUNNING"} 0.0' in text
    assert re.search(r"^convoy_agent_heartbeat_seconds_count [1-9]", text, re.MULTILINE)
    assert re.search(r"^convoy_agent_checkpoint_memory_limit_bytes [1-9]", text, re.MULTILINE)
    assert all(line.startswith(("#", "convoy_agent_", "process_")) for line in text.splitlines())


async def _get(host: Host, path: str) -> tuple[int, str]:
    def fetch() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{host.agent.health_port}{path}", timeout=5
            ) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""

    return await asyncio.to_thread(fetch)
