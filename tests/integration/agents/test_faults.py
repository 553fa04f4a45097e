"""Tests of faults by an agent in a process of its own, on a real network namespace."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest
from tests.integration.agents.harness import FakeHub, Host
from tests.integration.leftovers import unmount_below

from convoy_agents.wire import hub_pb2

UID, NODE = "aaaa-1111", "one"
RANK = """
import pathlib, subprocess, sys
subprocess.run(["ip", "link", "add", "eth0", "type", "veth", "peer", "name", "far"], check=True)
pathlib.Path("/proc/self/comm").write_text("rank-0")
print("ready", flush=True)
sys.stdin.readline()
"""
ASSIGNMENT = hub_pb2.Assignment(
    pod_uid=UID,
    job_uid="uid-of-job",
    job="default/job",
    incarnation=1,
    processes=1,
    world_size=1,
    master_addr="127.0.0.1",
    master_port=29500,
    hang_seconds=600,
    members=[hub_pb2.Member(pod_uid=UID, node=NODE, peer_address="127.0.0.1:1", processes=1)],
    command=["python", "train.py"],
    role="worker",
    slots=1,
)
ORDER = hub_pb2.InjectFault(
    id="f-1",
    pod_uid=UID,
    owner_uid="uid-of-job",
    job_uids=["uid-of-job"],
    kind="LinkLimit",
    magnitude=20.0,
    seconds=600.0,
)


class PodSandbox:
    """A rank in a network namespace of its own, and the control group of its pod."""

    def __init__(self, root: Path) -> None:
        if os.geteuid() or not shutil.which("tc"):
            pytest.skip("a network namespace needs root, ip and tc")
        self.process = subprocess.Popen(
            ["unshare", "--net", sys.executable, "-c", RANK],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        if self.process.stdout.readline() != "ready\n":
            pytest.skip("no network namespace can be created here")
        cgroups = root / "sys/fs/cgroup"
        group = cgroups / "kubepods" / f"pod{UID}" / "container"
        group.mkdir(parents=True)
        (cgroups / "cgroup.controllers").write_text("cpu memory\n")
        (group / "cgroup.procs").write_text(f"{self.process.pid}\n")

    def limited(self) -> bool:
        """Return True if the pod's interface has a token bucket."""
        command = ["nsenter", f"--net=/proc/{self.process.pid}/ns/net", "tc", "qdisc", "show", "dev", "eth0"]
        return "tbf" in subprocess.run(command, check=True, capture_output=True, text=True).stdout


class AgentProcess:
    """An agent in a process of its own, which the test may kill."""

    def __init__(self, host: Host) -> None:
        self.host = host

    async def start(self) -> None:
        settings = self.host.settings
        environment = {one.metadata["env"]: str(getattr(settings, one.name)) for one in fields(settings)}
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "convoy_agents",
            env={**environment, "PYTHONPATH": ":".join(sys.path), "PATH": os.environ["PATH"]},
            stdout=asyncio.subprocess.DEVNULL,
        )

    async def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


@pytest.fixture
def short() -> Iterator[Path]:
    """Yield a folder with a path that is short enough for socket addresses."""
    folder = Path(tempfile.mkdtemp())
    yield folder
    unmount_below(folder)
    shutil.rmtree(folder)


@pytest.fixture
def sandbox(short: Path) -> Iterator[PodSandbox]:
    found = PodSandbox(short / "root")
    yield found
    found.process.kill()
    found.process.wait()


@pytest.fixture
async def agent(short: Path, sandbox: PodSandbox, hub: FakeHub) -> AsyncIterator[AgentProcess]:
    host = Host(short, NODE, hub)
    host.settings = replace(host.settings, fault_injection=True, node_root=short / "root")
    found = AgentProcess(host)
    await found.start()
    await hub.until(lambda _, message: message.WhichOneof("body") == "heartbeat")
    await host.publish(UID)
    hub.send(NODE, assignment=ASSIGNMENT)
    yield found
    if found.process.returncode is None:
        await found.kill()


async def report(hub: FakeHub, state: int, start: int = 0) -> hub_pb2.FaultReport:
    """Wait for a report of the fault in this state, and return it."""

    def wanted(node: str, message: hub_pb2.AgentMessage) -> bool:
        return message.WhichOneof("body") == "fault" and message.fault.state == state

    found: hub_pb2.AgentMessage = await hub.until(wanted, start)
    return found.fault


async def test_a_fault_of_a_killed_agent_is_undone_by_the_next_one(
    agent: AgentProcess, sandbox: PodSandbox, hub: FakeHub
) -> None:
    hub.send(NODE, inject_fault=ORDER)
    await report(hub, hub_pb2.FaultReport.INJECTED)
    assert sandbox.limited()
    await agent.kill()
    assert sandbox.limited(), "nobody undid it yet"
    mark = len(hub.messages)
    await agent.start()
    undone = await report(hub, hub_pb2.FaultReport.UNDONE, mark)
    assert (undone.id, undone.message) == ("f-1", "the agent restarted")
    assert not sandbox.limited()
    mark = len(hub.messages)
    hub.send(NODE, inject_fault=ORDER)
    assert (await report(hub, hub_pb2.FaultReport.UNDONE, mark)).undone_unix_ms == undone.undone_unix_ms
    assert not sandbox.limited(), "an order that is repeated starts no second fault"


async def test_a_fault_ends_by_the_agents_timer_or_when_the_agent_stops(
    agent: AgentProcess, sandbox: PodSandbox, hub: FakeHub
) -> None:
    short_order = hub_pb2.InjectFault()
    short_order.CopyFrom(ORDER)
    short_order.seconds = 0.1
    hub.send(NODE, inject_fault=short_order)
    assert (await report(hub, hub_pb2.FaultReport.UNDONE)).message == "its time is over"
    assert not sandbox.limited()
    short_order.id, short_order.seconds = "f-2", 600.0
    hub.send(NODE, inject_fault=short_order)
    await hub.until(lambda _, message: message.fault.id == "f-2")
    assert sandbox.limited()
    agent.process.send_signal(signal.SIGTERM)
    await agent.process.wait()
    assert not sandbox.limited()
