"""Tests of the injector: orders, the timer, the undo after a crash, and the reports."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.agents.fault_orders import ORDER, pod

from convoy_agents.faults import injector
from convoy_agents.faults.error import FaultError, TargetGone
from convoy_agents.faults.fault import Fault, Surroundings, Target
from convoy_agents.faults.injector import DISABLED, FaultInjector
from convoy_agents.faults.pod_processes import NodeFolders
from convoy_agents.faults.record import Order, Records
from convoy_agents.pods.state import PodState
from convoy_agents.wire import hub_pb2

State = hub_pb2.FaultReport


class Switch(Fault):
    """A fault that sets a file, the state of the node."""

    def start(self, target: Target) -> None:
        if (self.path / "refuses").exists():
            raise FaultError("the pod does not allow it")
        self.record.undo["was"] = "off"
        self.save()
        (self.path / "switch").write_text("on")
        self.active = True

    def keep(self, target: Target) -> None:
        if (self.path / "gone").exists():
            raise TargetGone("the container has ended")
        self.record.achieved = 1.5

    def undo(self) -> None:
        if (self.path / "stuck").exists():
            raise {"": OSError, "bug": KeyError}[(self.path / "stuck").read_text()]("device busy")
        if "was" in self.record.undo:
            (self.path / "switch").write_text(self.record.undo["was"])

    @property
    def path(self) -> Path:
        return self.around.kubelet_dir


class Node:
    """A node whose agent the test starts, crashes and starts again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, 50.0
        self.pods: list[PodState] = [pod("a", "job-1")]
        self.states: dict[str, State] = {}
        self.task: asyncio.Task[None] | None = None
        self.due = asyncio.Event()

    async def start(self, *, enabled: bool = True) -> FaultInjector:
        records = Records(self.folder / "faults", injector.KINDS)
        view = NodeFolders.at(self.folder, self.folder)
        around = Surroundings(view, self.folder, records.save, lambda: self.now)
        self.agent = FaultInjector(enabled, records, around, lambda: self.pods, self.due.set)
        await self.agent.recover()
        self.task = asyncio.create_task(self.agent.run())
        self.collect(again=True)
        return self.agent

    async def crash(self) -> None:
        assert self.task
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def order(self, order: Order = ORDER) -> None:
        message = hub_pb2.InjectFault(**order._asdict())
        self.agent.handle(hub_pb2.HubMessage(inject_fault=message))

    def collect(self, *, again: bool = False) -> dict[str, State]:
        self.states.update((one.id, one) for one in self.agent.reports(again))
        return self.states

    async def until(self, wanted: Callable[[State], bool], fault: str = "f-1") -> State:
        async with asyncio.timeout(20):
            while fault not in self.collect() or not wanted(self.states[fault]):
                self.due.clear()
                await self.due.wait()
        return self.states[fault]

    @property
    def switch(self) -> str:
        path = self.folder / "switch"
        return path.read_text() if path.exists() else "off"


def is_state(state: int) -> Callable[[State], bool]:
    return lambda report: report.state == state


INJECTED, UNDONE, REFUSED = (is_state(one) for one in (State.INJECTED, State.UNDONE, State.REFUSED))


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setitem(injector.KINDS, "SlowRank", Switch)
    monkeypatch.setattr(injector, "TICK_SECONDS", 0.001)
    monkeypatch.setattr(injector, "UNDO_RETRY_SECONDS", 0.0)
    found = Node(tmp_path)
    await found.start()
    return found


async def test_a_fault_is_injected_measured_and_undone_by_the_agents_own_timer(node: Node) -> None:
    node.order()
    report = await node.until(INJECTED)
    assert (report.pod_uid, report.kind, node.switch) == ("a", "SlowRank", "on")
    assert report.injected_unix_ms
    node.now += injector.REPORT_SECONDS
    assert (await node.until(lambda one: one.HasField("achieved"))).achieved == 1.5
    node.order()
    node.now += ORDER.seconds
    report = await node.until(UNDONE)
    assert (report.message, report.achieved, node.switch) == ("its time is over", 1.5, "off")
    node.order()
    await asyncio.sleep(0)
    assert (await node.until(UNDONE)).undone_unix_ms == report.undone_unix_ms, "no second time"
    assert node.switch == "off"


async def test_the_operator_ends_a_fault_early_and_an_unknown_one_is_said(node: Node) -> None:
    node.order()
    await node.until(INJECTED)
    node.agent.handle(hub_pb2.HubMessage(undo_fault=hub_pb2.UndoFault(id="f-1")))
    assert (await node.until(UNDONE)).message == "the operator ended it"
    assert node.switch == "off"
    unknown = hub_pb2.UndoFault(id="f-9", pod_uid="a")
    node.agent.handle(hub_pb2.HubMessage(undo_fault=unknown))
    report = await node.until(UNDONE, "f-9")
    assert (report.pod_uid, report.injected_unix_ms) == ("a", 0)
    assert "knows no fault of this id" in report.message


async def test_the_next_agent_undoes_what_a_killed_one_left(node: Node) -> None:
    node.order()
    await node.until(INJECTED)
    await node.crash()
    assert node.switch == "on"
    await node.start(enabled=False)
    assert (node.switch, node.states["f-1"].state) == ("off", State.UNDONE)
    assert node.states["f-1"].message == "the agent restarted"
    node.order()
    assert node.switch == "off", "a repeated order starts nothing"


async def test_an_agent_that_stops_undoes_its_faults(node: Node) -> None:
    node.order()
    await node.until(INJECTED)
    await node.crash()
    await node.agent.close()
    assert node.switch == "off"
    node.agent.clear()
    assert [*(node.folder / "faults").iterdir()] == []


@pytest.mark.parametrize("error", ["", "bug"])
async def test_an_undo_that_fails_is_said_and_repeated(node: Node, error: str) -> None:
    node.order()
    await node.until(INJECTED)
    (node.folder / "stuck").write_text(error)
    node.now += ORDER.seconds
    report = await node.until(lambda one: "tries again" in one.message)
    assert report.state == State.INJECTED
    assert "cannot be undone, the agent tries again" in report.message and "device busy" in report.message
    (node.folder / "stuck").unlink()
    node.now += 60
    assert (await node.until(UNDONE)).message == "its time is over"
    assert node.switch == "off"


async def test_another_pod_may_have_a_fault_of_the_same_name(node: Node) -> None:
    node.order()
    await node.until(INJECTED)
    node.now += ORDER.seconds
    await node.until(UNDONE)
    node.pods.append(pod("b", "job-2"))
    node.order(ORDER._replace(pod_uid="b", owner_uid="job-2"))
    assert (await node.until(INJECTED)).pod_uid == "b"
    assert node.switch == "on"


@pytest.mark.parametrize("end", ["pod", "job", "container"])
async def test_a_fault_ends_when_its_target_no_longer_fits(node: Node, end: str) -> None:
    node.order()
    await node.until(INJECTED)
    if end == "pod":
        node.pods.clear()
        node.agent.drop_pod("a")
    elif end == "job":
        node.pods.append(pod("b", "foreign"))
    else:
        (node.folder / "gone").touch()
    why = {
        "pod": "the pod left the node",
        "job": "pod b of job default/foreign",
        "container": "the container has ended",
    }
    assert why[end] in (await node.until(UNDONE)).message
    assert node.switch == "off"


async def test_a_refused_fault_changes_nothing_and_may_be_ordered_again(node: Node) -> None:
    (node.folder / "refuses").touch()
    node.order()
    assert (await node.until(REFUSED)).message == "the pod does not allow it"
    assert [*(node.folder / "faults").iterdir()] == []
    node.order(ORDER._replace(id="f-2", kind="NodeLoss"))
    assert "never injects" in (await node.until(REFUSED, "f-2")).message
    node.pods.append(pod("b", "foreign"))
    node.order(ORDER._replace(id="f-3"))
    assert "pod b of job default/foreign" in (await node.until(REFUSED, "f-3")).message
    assert node.switch == "off"
    (node.folder / "refuses").unlink()
    node.pods.pop()
    node.order()
    assert await node.until(INJECTED)


async def test_an_agent_without_the_setting_injects_nothing(node: Node) -> None:
    await node.crash()
    await node.start(enabled=False)
    node.order()
    assert (await node.until(REFUSED)).message == DISABLED
    assert node.switch == "off"


async def test_an_agent_that_stops_waits_for_a_fault_that_just_begins(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def start(self: Switch, target: Target) -> None:
        self.record.undo["was"] = "off"
        entered.set()
        go_on.wait(20)
        (self.path / "switch").write_text("on")

    monkeypatch.setattr(Switch, "start", start)
    node.order()
    await asyncio.to_thread(entered.wait, 20)
    await node.crash()
    closing = asyncio.create_task(node.agent.close())
    await asyncio.sleep(0)
    go_on.set()
    await closing
    assert node.switch == "off"
