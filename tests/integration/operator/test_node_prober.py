"""Tests of silent nodes with real connections and Leases, and of the label that a dead node loses."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from convoy_crds.terms import LABEL_AGENT_READY
from convoy_operator.hub import node_prober
from convoy_operator.hub.node_prober import ABSENT, reachable

from .conftest import NODE_LEASES, FakeAgent, Installation, eventually, running
from .test_operator import JOBS, Kubelet, job

UNROUTABLE = "224.0.0.1"
"""A multicast address. Linux has no route for TCP connections to it, so every attempt fails."""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def blackhole() -> Iterator[tuple[str, int]]:
    """An address that drops packets, like a machine without power. It is a listener whose queue is full,
    which works on Linux.
    """
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.2", 0), backlog=0))
        for _ in range(4):
            link = stack.enter_context(socket.socket())
            link.setblocking(False)
            link.connect_ex(server.getsockname())
        yield server.getsockname()


async def test_an_open_port_is_reachable(listener: socket.socket) -> None:
    assert await reachable(*listener.getsockname())


async def test_a_refused_connection_is_reachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    assert await reachable(*address)


async def test_an_ipv6_address_is_probed() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
            port = server.getsockname()[1]
    except OSError:
        pytest.skip("no IPv6 here")
    assert await reachable("::1", port)


async def test_a_host_that_drops_packets_is_unreachable_after_a_timeout(blackhole: tuple[str, int]) -> None:
    began = time.monotonic()
    assert not await reachable(*blackhole)
    assert 0.4 < time.monotonic() - began < 2.0


async def test_an_address_without_a_route_is_unreachable() -> None:
    assert not await reachable(UNROUTABLE, 9)


async def test_a_local_socket_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(socket, "socket", full)
    with pytest.raises(OSError, match="Too many"):
        await reachable("127.0.0.1", 9)


async def test_a_silent_node_is_probed_and_loses_its_label_if_unreachable(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, blackhole: tuple[str, int]
) -> None:
    dead, port = blackhole
    monkeypatch.setattr(node_prober, "PORT", port)
    namespace = installation.plane.namespace()
    kubelet = Kubelet(installation, namespace)
    node = f"{namespace}-n"
    await installation.node(node)
    renewed = datetime.now(UTC) - timedelta(seconds=100)
    lease = {
        "metadata": {"name": node},
        "spec": {"renewTime": renewed.isoformat(timespec="microseconds").replace("+00:00", "Z")},
    }
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{NODE_LEASES}/leases"
    await installation.call("POST", leases, lease)
    other = f"{node}-other"
    await installation.node(other)

    async def labelled() -> bool:
        found = await installation.call("GET", f"/api/v1/nodes/{node}")
        return found["metadata"].get("labels", {}).get(LABEL_AGENT_READY) == "true"

    async with running(
        installation,
        monkeypatch,
        agent_quiet_seconds=1.5,
        agent_silent_seconds=2.5,
        agent_unready_seconds=600.0,
    ) as operator:
        agent = FakeAgent(installation, operator.server, node)
        await agent.enrol()
        await agent.dial()
        await eventually(labelled, what="label")
        await installation.call("POST", JOBS.format(namespace), job("train", 1))
        (pod,) = await eventually(lambda: _pods(kubelet, 1), what="pod")
        await kubelet.start(pod, node, "127.0.0.1")
        view = await eventually(lambda: _placed(operator, namespace), what="pod placed")

        def seen() -> Any:
            return operator.hub.reader.nodes((view,))[node]

        assert seen().silent_seconds == 0.0
        await eventually(
            lambda: node in operator.hub.monitor._clocks, what="a heartbeat, which tells the node's clock"
        )
        await agent.hang_up()
        await eventually(lambda: seen().silent_seconds, what="silence")
        await eventually(lambda: seen().lease_seconds > 99, what="the kubelet's Lease")
        assert seen().lease_seconds < 200 and seen().pods_reachable and seen().ready
        assert await labelled(), "the node lives: its agent may come back"

        await kubelet.status(pod["metadata"]["name"], {"podIP": dead, "podIPs": [{"ip": dead}]})
        await eventually(
            lambda: not operator.hub.monitor.prober.reachable(node), what="the node is unreachable"
        )
        assert seen().pods_reachable, "no control replies either: a NetworkPolicy may block probes"
        await installation.call("DELETE", f"{leases}/{node}")
        await eventually(lambda: seen().lease_seconds == ABSENT, what="no Lease")
        # From here on the operator may consider the node lost, with the pod on it.
        sibling = await _neighbour(installation, operator, namespace, other)
        await eventually(lambda: not seen().pods_reachable, what="the node is unreachable")
        await eventually(lambda: not seen().agent_ready, what="the label is removed")
        assert not await labelled()
        await agent.dial()
        await eventually(labelled, what="label")
        assert seen().silent_seconds == 0.0
        await agent.hang_up()
        await sibling.hang_up()


async def test_a_deleted_node_is_detected(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = f"{installation.namespace}-gone"
    await installation.node(node)
    async with running(installation, monkeypatch) as operator:
        await eventually(lambda: operator.cache.nodes.get("", node))
        assert operator.cache.nodes.get("", node).ready
        await installation.call(
            "PATCH",
            f"/api/v1/nodes/{node}",
            {"spec": {"unschedulable": True}},
            content_type="application/merge-patch+json",
        )
        await eventually(lambda: operator.cache.nodes.get("", node).cordoned, what="cordon")
        await installation.call("DELETE", f"/api/v1/nodes/{node}")
        await eventually(lambda: operator.cache.nodes.get("", node) is None, what="the node is deleted")


async def _neighbour(installation: Installation, operator: Any, namespace: str, node: str) -> FakeAgent:
    """Create a pod of another job on a healthy node, which replies to probes. Return the node's agent."""
    agent = FakeAgent(installation, operator.server, node)
    await agent.enrol()
    await agent.dial()
    await installation.call("POST", JOBS.format(namespace), job("other", 1))
    kubelet = Kubelet(installation, namespace)
    pods = await eventually(lambda: _pods(kubelet, 2), what="another job's pod")
    pod = next(one for one in pods if one["metadata"]["name"].startswith("other"))
    await kubelet.start(pod, node, "127.0.0.1")
    return agent


async def _pods(kubelet: Kubelet, count: int) -> list[dict[str, Any]]:
    pods = await kubelet.list()
    return pods if len(pods) == count else []


async def _placed(operator: Any, namespace: str) -> Any:
    pods = operator.cache.pods.indexed((namespace, "train"))
    return pods[0].view if pods and pods[0].view.ip else None
