"""Tests of traces of real ranks: with real agents, and a store on a volume."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import FakeHub, Host, Pod, assignment
from tests.integration.agents.ranks import Rank, running, start, variables
from tests.integration.agents.test_remote_volume import PART, disk, mount, send_store
from tests.integration.agents.traced_program import PARAMETERS
from tests.ports import free_port

from convoy_agents.wire import hub_pb2
from convoy_workloads.runtime.tracing import JSON_FACTOR
from convoy_workloads.traces.trace import is_communication
from convoy_workloads.traces.validate.all_ranks import check_ranks
from convoy_workloads.traces.validate.one_trace import check_trace
from convoy_workloads.traces.wire.reader import read_whole

__all__ = ["disk"]

A, B = "aaaa-1111", "bbbb-2222"
PROGRAM = Path(__file__).with_name("traced_program.py")
STORED, FAILED = hub_pb2.TraceReport.STORED, hub_pb2.TraceReport.FAILED
pytestmark = pytest.mark.timeout(300)


class Job:
    """A job with one rank on each of two nodes."""

    def __init__(self, hub: FakeHub, hosts: list[Host], folder: Path) -> None:
        self.hub, self.hosts, self.folder = hub, hosts, folder
        self.launchers: list[Pod] = []
        self.members = list(zip((A, B), hosts, (1, 1), strict=True))

    async def start(self) -> None:
        for uid, host, _ in self.members:
            await host.publish(uid)
            self.launchers.append(await host.launcher(uid))
            await self.hub.report(uid, lambda report: report.launcher_connected)
            (self.folder / uid).symlink_to(host.target(uid))

    def assign(self, incarnation: int = 1, **order: Any) -> None:
        """Send the assignments, with an order for a trace of both ranks."""
        for slot, (_, host, _) in enumerate(self.members):
            plan = assignment("job", incarnation, slot, self.members)
            if order:
                fields = {"recording": 1, "count": 2, "store": "disk", "max_bytes": 2**20, **order}
                plan.trace.CopyFrom(hub_pb2.TraceOrder(ranks=[slot], **fields))
            self.hub.send(host.node, assignment=plan)

    async def run(self, total: int, **environment: str) -> list[Rank]:
        """Start the ranks as their launchers do after an assignment."""
        port, ranks = free_port(), []
        for number, (uid, _, _) in enumerate(self.members):
            found = await self.launchers[number].receive()
            own = variables(number, 2, port, found["incarnation"], self.folder / uid / "agent.sock")
            own |= {"CONVOY_TRACE": json.dumps(found["trace"]) if "trace" in found else ""}
            ranks.append(await start(PROGRAM, str(total), own | environment))
        return ranks

    async def traced(self, uid: str, recording: int = 1, after: int = 0) -> Any:
        """Wait until the trace of a pod's rank is stored or has failed."""

        def over(report: Any) -> bool:
            return report.trace_recording == recording and bool(report.traces)

        return (await self.hub.report(uid, over, after)).traces[0]


@pytest.fixture
async def job(make_host: HostMaker, hub: FakeHub, disk: Path, tmp_path: Path) -> Job:
    hosts = [await make_host(name) for name in ("one", "two")]
    mount(disk, *hosts)
    await send_store(hub, *hosts)
    made = Job(hub, hosts, tmp_path)
    await made.start()
    return made


def files(disk: Path) -> dict[str, bytes]:
    folder = disk / PART / "default" / "uid-of-job" / "traces"
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def check(disk: Path, reports: list[Any], steps: set[int], recording: int = 1, more: int = 0) -> None:
    """Check the files of both ranks, and the figures that they reported. `more`: bytes in a step beside the
    gradients.
    """
    found = files(disk)
    assert sorted(found) == [f"trace-{recording}.{rank}.et" for rank in (0, 1)]
    traces = []
    for rank, report in enumerate(reports):
        name = f"trace-{recording}.{rank}.et"
        assert (report.state, report.rank, report.bytes) == (STORED, rank, len(found[name])), report.message
        assert report.sha256 == hashlib.sha256(found[name]).hexdigest()
        assert report.comm_bytes_per_step == PARAMETERS * 4 + more
        assert 0 <= report.exposed_communication_ratio <= 1
        path = disk / PART / "default" / "uid-of-job" / "traces" / name
        trace = read_whole(path)
        assert (trace.rank, len(trace.nodes)) == (rank, report.nodes)
        assert check_trace(trace) == []
        numbers = {
            one.int64_val
            for node in trace.nodes
            if is_communication(node)
            for one in node.attr
            if one.name == "step"
        }
        assert numbers == steps
        traces.append(trace)
    assert check_ranks(traces) == []


async def test_ordered_steps_reach_the_store_through_the_agents(job: Job, hub: FakeHub, disk: Path) -> None:
    job.assign(first=1)
    async with running() as ranks:
        ranks.extend(await job.run(6))
        for rank in ranks:
            await rank.until("END")
        # In the second step DDP broadcasts the 24 bytes of its new buckets' sizes.
        check(disk, [await job.traced(uid) for uid in (A, B)], {1, 2}, more=12)
        assert [await rank.process.wait() for rank in ranks] == [0, 0]
        assert not [line for rank in ranks for line in rank.lines if "no trace" in line]


async def test_running_ranks_record_when_asked_and_say_if_it_is_too_late(
    job: Job, hub: FakeHub, disk: Path
) -> None:
    job.assign()
    go = job.folder / "go"
    async with running() as ranks:
        ranks.extend(await job.run(12, HOLD="6", GO=str(go)))
        for rank in ranks:
            await rank.until(r"STEP 5\b")
        job.assign(first=4)
        await hub.report(A, lambda report: report.trace_recording == 1)
        await hub.report(B, lambda report: report.trace_recording == 1)
        # The ranks record by the later order. They know it before the agents report it.
        job.assign(first=8, recording=2, attempt=1)
        for uid in (A, B):
            await hub.report(uid, lambda report: (report.trace_recording, report.trace_attempt) == (2, 1))
        go.touch()
        check(disk, [await job.traced(uid, 2) for uid in (A, B)], {8, 9}, recording=2)
        start = len(hub.messages)
        job.assign()
        await hub.report(A, lambda report: not report.trace_recording, start)
        for rank in ranks:
            await rank.until("END")
    assert len(files(disk)) == 2


async def test_steps_that_have_begun_are_reported_as_passed(job: Job, hub: FakeHub, disk: Path) -> None:
    job.assign()
    go = job.folder / "go"
    async with running() as ranks:
        ranks.extend(await job.run(12, HOLD="6", GO=str(go)))
        for rank in ranks:
            await rank.until(r"STEP 5\b")
        job.assign(first=4)
        for uid in (A, B):
            await hub.report(uid, lambda report: report.trace_recording == 1)
        go.touch()
        for uid in (A, B):
            report = await job.traced(uid)
            assert (report.state, report.failure) == (FAILED, hub_pb2.TraceReport.STEPS_PASSED)
        for rank in ranks:
            await rank.until("END")
        assert [await rank.process.wait() for rank in ranks] == [0, 0]
    assert not files(disk)


async def test_a_store_that_is_away_costs_the_trace_alone(
    make_host: HostMaker, hub: FakeHub, disk: Path, tmp_path: Path
) -> None:
    hosts = [await make_host(name) for name in ("one", "two")]
    await send_store(hub, *hosts)  # the volume is not mounted
    job = Job(hub, hosts, tmp_path)
    await job.start()
    job.assign(first=2)
    async with running() as ranks:
        ranks.extend(await job.run(6))
        for rank in ranks:
            await rank.until("END")
        for uid in (A, B):
            report = await job.traced(uid)
            assert (report.state, report.failure) == (FAILED, hub_pb2.TraceReport.NOT_STORED)
            assert "not mounted" in report.message
        assert [await rank.process.wait() for rank in ranks] == [0, 0]
    assert not files(disk)


async def test_a_trace_beyond_the_budget_is_not_stored(job: Job, hub: FakeHub, disk: Path) -> None:
    job.assign(first=2, max_bytes=10_000)
    async with running() as ranks:
        ranks.extend(await job.run(6))
        for rank in ranks:
            await rank.until("END")
        for uid in (A, B):
            report = await job.traced(uid)
            assert (report.state, report.failure) == (FAILED, hub_pb2.TraceReport.TOO_LARGE), report.message
            assert "10000" in report.message or f"{10_000 * JSON_FACTOR}" in report.message
    assert not files(disk)


async def test_a_script_without_the_api_is_recorded_between_optimizer_steps(
    job: Job, hub: FakeHub, disk: Path
) -> None:
    job.assign(first=3)
    async with running() as ranks:
        ranks.extend(await job.run(8, PLAIN="1"))
        for rank in ranks:
            await rank.until("END")
        reports = [await job.traced(uid) for uid in (A, B)]
        assert [one.message for one in reports] == ["", ""]
        check(disk, reports, {3, 4})
