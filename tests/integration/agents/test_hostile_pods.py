"""Tests of untrusted pods. The agent refuses requests that a pod may not make, and limits the effect of one
pod on other pods.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import FakeHub, Host, Pod, assignment, eventually
from tests.integration.agents.memory_job import SIZE, MemoryJob, saved, state

from convoy_agents.guard import windows
from convoy_agents.pods import limits
from convoy_agents.pods.state import CommitDecided
from convoy_controllers.checkpoint.commit import Verdict
from convoy_controllers.checkpoint.generation import Generation, Tier

UID = "aaaa-1111"


@pytest.fixture
async def host(make_host: HostMaker, hub: FakeHub) -> Host:
    """Return a host with one pod. Its ranks 0 and 1 run in incarnation 2."""
    host = await make_host("one")
    await host.publish(UID)
    launcher = await host.launcher(UID)
    await hub.report(UID, lambda report: report.launcher_connected)
    hub.send("one", assignment=assignment("job", 2, 0, [(UID, host, 2), ("far", host, 2)]))
    await launcher.receive()
    host.pods.append(launcher)
    return host


async def dial(host: Host) -> Pod:
    return await Pod.dial(host.target(UID) / "agent.sock")


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x03\xff\xff\xff",
        (200_000).to_bytes(4, "big") + b"[" * 200_000,
    ],
    ids=["another protocol", "too long", "no object", "no text", "nested without end"],
)
async def test_a_malformed_frame_ends_the_connection(host: Host, data: bytes) -> None:
    pod = await dial(host)
    pod.writer.write(data)
    assert await pod.ended()


@pytest.mark.parametrize(
    "hello",
    [
        {"type": "progress", "step": 1},
        {"type": "hello", "role": "admin", "incarnation": 2},
        {"type": "hello", "role": "rank", "incarnation": 2, "rank": 2},
        {"type": "hello", "role": "rank", "incarnation": 1, "rank": 0},
        {"type": "hello", "role": "rank", "incarnation": 3, "rank": 0},
        {"type": "hello", "role": "rank", "incarnation": 2, "rank": True},
        {"type": "hello", "role": "memory", "incarnation": 2, "rank": 2},
        {"type": "hello", "role": "memory", "incarnation": 1, "rank": 0},
        {"type": "hello", "role": "launcher", "incarnation": 2**62},
    ],
    ids=[
        "none",
        "no role",
        "another pod's rank",
        "older",
        "newer",
        "no number",
        "another pod's memory",
        "older memory",
        "absurd",
    ],
)
async def test_a_wrong_hello_ends_the_connection(host: Host, hello: dict[str, object]) -> None:
    pod = await dial(host)
    pod.send(**hello)
    assert await pod.ended()


async def test_a_silent_connection_is_ended(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HELLO_SECONDS", 0.1)
    pod = await dial(host)
    assert await pod.ended()


async def test_connections_per_pod_are_limited(host: Host) -> None:
    crowd = [await dial(host) for _ in range(limits.MAX_CONNECTIONS)]
    more = await dial(host)
    assert await more.ended()
    for pod in crowd:
        pod.close()
    session = host.agent.pods.get(UID)
    assert session
    await eventually(lambda: session.connections <= 1)
    rank = await host.rank(UID, 0, 2)
    rank.send(type="progress", step=1)
    await eventually(lambda: 0 in session.state.ranks)


async def test_unfinished_frames_are_bounded(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_PARTIAL", 100_000)
    first, second = await dial(host), await dial(host)
    session = host.agent.pods.get(UID)
    assert session
    for pod in (first, second):
        pod.writer.write((200_000).to_bytes(4, "big") + b" " * 60_000)
    ended = [asyncio.create_task(pod.ended()) for pod in (first, second)]
    done, left = await asyncio.wait(ended, timeout=5, return_when=asyncio.FIRST_COMPLETED)
    assert len(done) == 1
    for task in left:
        task.cancel()


async def test_a_flood_is_rate_limited_and_the_neighbour_is_not(host: Host, hub: FakeHub) -> None:
    await host.publish("neighbour")
    flood = await host.rank(UID, 1, 2)
    for step in range(20_000):
        flood.send(type="progress", step=step + 1)
    launcher = await host.launcher("neighbour")
    await hub.report("neighbour", lambda report: report.launcher_connected)
    session = host.agent.pods.get(UID)
    assert session
    progress = session.state.ranks[1].progress
    assert progress
    assert progress.step < 20_000
    flood.close()
    launcher.close()


COSTLY_FRAME: dict[str, Any] = {
    "type": "telemetry",
    "windows": [{"first": n + 1, "last": n + 1, "micro": [0] * windows.MAX_MICRO} for n in range(32)],
}
"""The telemetry frame with the highest parsing cost."""


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of ranks. Each telemetry frame that the agent parses adds its rank to the list."""
    found: list[int] = []
    parse = windows.parse

    def noted(frame: Mapping[str, Any], rank: int) -> Any:
        found.append(rank)
        return parse(frame, rank)

    monkeypatch.setattr(windows, "parse", noted)
    return found


async def test_a_flood_on_all_connections_shares_one_rate_limit(
    make_host: HostMaker, hub: FakeHub, read: list[int]
) -> None:
    host = await make_host("one")
    await host.publish(UID)
    await host.publish("neighbour")
    launcher = await host.launcher(UID)
    await hub.report(UID, lambda report: report.launcher_connected)
    hub.send("one", assignment=assignment("job", 2, 0, [(UID, host, 64)]))
    await launcher.receive()
    ranks = [await host.rank(UID, number, 2) for number in range(64)]
    loop = asyncio.get_running_loop()
    began = loop.time()
    for rank in ranks:
        for _ in range(50):
            rank.send(**COSTLY_FRAME)
    neighbour = await host.launcher("neighbour")
    await hub.report("neighbour", lambda report: report.launcher_connected)
    await eventually(lambda: len(read) >= 200)
    allowed = limits.FRAMES_BURST + (loop.time() - began) * limits.FRAMES_PER_SECOND
    assert len(read) * limits.weight(COSTLY_FRAME) <= allowed
    assert len(set(read)) == 64
    for pod in (*ranks, launcher, neighbour):
        pod.close()


async def test_the_backlog_of_64_ranks_is_not_rate_limited(
    make_host: HostMaker, hub: FakeHub, read: list[int]
) -> None:
    """After a restart of the agent, 64 ranks send the windows of the last 32 steps at once. The rate limit
    must not slow them.
    """
    host = await make_host("one")
    await host.publish(UID)
    launcher = await host.launcher(UID)
    await hub.report(UID, lambda report: report.launcher_connected)
    hub.send("one", assignment=assignment("job", 2, 0, [(UID, host, 64)]))
    await launcher.receive()
    session = host.agent.pods.get(UID)
    assert session
    pauses: list[float] = []
    spend = session._frame_rate._bucket.spend

    def noted(cost: float, now: float) -> float:
        pauses.append(spend(cost, now))
        return pauses[-1]

    session._frame_rate._bucket.spend = noted  # type: ignore[method-assign]
    for number in range(64):
        rank = await host.rank(UID, number, 2)
        rank.send(type="telemetry", windows=[{"first": n + 1, "last": n + 1, "wall": 1.5} for n in range(32)])
        rank.send(type="progress", step=32)
        host.pods.append(rank)
    await eventually(lambda: len(session.state.ranks) == 64)
    assert len(read) == 64 and not any(pauses)


@pytest.mark.parametrize("incarnation", [0, 2])
async def test_step_timings_without_an_assignment_are_ignored(
    make_host: HostMaker, hub: FakeHub, read: list[int], incarnation: int
) -> None:
    """The agent has no assignment of the pod, so it does not know the pod's ranks. It must ignore step
    timings, because the pod could send them for any rank.
    """
    host = await make_host("one")
    await host.publish(UID)
    if incarnation:
        launcher = await Pod.dial(host.target(UID) / "agent.sock", role="launcher", incarnation=incarnation)
        host.pods.append(launcher)
        await hub.report(UID, lambda report: report.launcher_connected)
    rank = await host.rank(UID, 77, incarnation)
    rank.send(**COSTLY_FRAME)
    rank.send(type="progress", step=1)
    session = host.agent.pods.get(UID)
    assert session
    await eventually(lambda: 77 in session.state.ranks)
    assert read == [] and not host.agent._telemetry._pods
    rank.close()


async def test_a_client_that_reads_nothing_is_disconnected(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_UNREAD", 10_000)
    deaf = await host.rank(UID, 0, 2)
    session = host.agent.pods.get(UID)
    assert session
    await eventually(lambda: session.connections == 2)
    for step in range(100_000):
        session.dispatch(CommitDecided(Tier.LOCAL, Generation(2, step), Verdict.STALE, 3, 0))
        if session.connections < 2:
            break
        await asyncio.sleep(0)
    assert session.connections < 2
    deaf.close()


LONG = 64 * 2**20


@pytest.mark.parametrize(
    "grown, length",
    [(0, 2**40), (0, 0), (LONG, SIZE + LONG)],
    ids=["longer than its slot", "nothing", "a slot that the rank has made longer"],
)
async def test_a_seal_of_another_length_than_the_buffer_is_refused(
    make_host: HostMaker, hub: FakeHub, tmp_path: Path, grown: int, length: int
) -> None:
    """A rank may seal a length of 1 byte up to the buffer's original size. The agent must refuse any other
    length, even if the rank has made the file longer. Computing the digests of a longer file would cost
    memory and time that other jobs need.
    """
    host = await make_host("one")
    job = MemoryJob(hub, tmp_path)
    ranks = await job.start_incarnation(1, [(UID, host)])
    response, files = await asyncio.to_thread(ranks[0].line.request, {"type": "reserve", "size": SIZE}, 30.0)
    for name, fd in zip(response["names"], files, strict=True):
        if name == "0-0" and grown:
            os.ftruncate(fd, SIZE + grown)
        os.close(fd)
    rest = {"world": 1, "torch": "2.13", "plan": "same"}
    answer = await ranks[0].request(type="seal", buffer="0-0", step=5, length=length, **rest)
    assert answer["type"] == "failed", answer.body
    assert f"not {length}" in answer["why"], answer.body
    await saved(ranks, 1, 6, Tier.LOCAL)


async def test_a_pod_cannot_report_for_another_pod(host: Host, hub: FakeHub) -> None:
    await host.publish("victim")
    theirs = await host.launcher("victim")
    await hub.report("victim", lambda report: report.launcher_connected)
    mark = len(hub.messages)
    names = {"pod_uid": "victim", "podUid": "victim", "uid": "victim"}
    launcher, rank = host.pods[0], await host.rank(UID, 0, 2)
    rank.send(type="progress", step=7, **names)
    launcher.send(type="rank", incarnation=2, rank=1, state="EXITED", exitCode=1, **names)
    launcher.send(type="rank", incarnation=2, rank=2, state="EXITED", exitCode=1, **names)
    await hub.report(UID, lambda report: any(one.exit_code for one in report.ranks), mark)
    # The agent reports the other pod's frame after it has handled the first pod's frames. So when this report
    # arrives, all reports that the first pod could cause have arrived.
    theirs.send(type="portPicked", incarnation=1, port=30000)
    last = await hub.report("victim", lambda report: report.master_port == 30000, mark)
    assert not last.ranks and last.launcher_connected
    own = host.agent.pods.get(UID)
    assert own and set(own.state.ranks) == {0, 1}, "nor of ranks that are another pod's"


async def test_a_rank_cannot_read_another_job_s_checkpoints(
    make_host: HostMaker, hub: FakeHub, tmp_path: Path
) -> None:
    one = await make_host("one")
    victim = MemoryJob(hub, tmp_path, name="victim")
    ranks = await victim.start_incarnation(1, [("vvvv-1111", one)])
    await saved(ranks, 1, 5, Tier.LOCAL)
    job_memory = one.agent.memory_manager.get("uid-of-victim")
    assert job_memory is not None
    (shard,) = await job_memory.inspect(lambda store: list(store.manifests))
    (thief,) = await MemoryJob(hub, tmp_path, name="thief").form(1, [("tttt-2222", one)])
    found = await thief.restore()
    assert not found["shards"], "there is nothing of its own"
    for wanted in (shard, "0", f"../uid-of-victim/{shard}", "../../victim"):
        answer = await thief.request(type="shard", shard=wanted)
        assert answer["type"] != "shard" and not answer.areas, (wanted, answer.body)
    inside = {str(path) for path in one.target("tttt-2222").rglob("*")}
    assert not [path for path in inside if "memory" in path or "victim" in path]


async def test_a_rank_cannot_write_the_files_of_a_restore(
    make_host: HostMaker, hub: FakeHub, tmp_path: Path
) -> None:
    one = await make_host("one")
    job = MemoryJob(hub, tmp_path)
    ranks = await job.start_incarnation(1, [(UID, one)])
    await saved(ranks, 1, 5, Tier.LOCAL)
    (rank,) = await job.form(2, [(UID, one)])
    await rank.restore()
    response, files = await asyncio.to_thread(rank.line.request, {"type": "shard", "shard": "0"}, 30.0)
    assert response["type"] == "shard" and files
    for fd in files:
        for harm in (lambda fd: os.pwrite(fd, b"x", 0), lambda fd: os.ftruncate(fd, 0)):
            with pytest.raises(OSError) as caught:
                harm(fd)
            assert caught.value.errno in (errno.EBADF, errno.EINVAL)
        # The test runs as root, so only the read-only mount can prevent the write.
        with pytest.raises(OSError) as caught:
            os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
        assert caught.value.errno == errno.EROFS
        assert os.pread(fd, 4096, 0) == state(5, 0)[:4096]
        os.close(fd)
