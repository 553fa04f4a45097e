"""Tests of an isolated agent in virtual time: its probes, its attestation requests, and the stop of its
Strict jobs.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.agents.test_rules import plan
from tests.unit.operator.conftest import virtual  # noqa: F401 - a fixture

from convoy_agents import isolation
from convoy_agents.isolation import Isolation
from convoy_agents.pods.assignment import Member
from convoy_agents.pods.state import PodState, Shutdown
from convoy_controllers.liveness import fence

Run = Callable[[Coroutine[Any, Any, None]], None]

STRICT = replace(plan(1), strict=True)
"""The assignment of slot 0 of a Strict job. Slot 0 is on this node, "one", and slot 1 is on node "two"."""


class Surroundings:
    """Fakes of everything outside the `Isolation` under test.

    If `api` or `peer` is False, the API server or the peers do not respond. The hub responds only while
    `hub_replies` runs.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **pods: PodState) -> None:
        self.api = False
        self.peer = False
        self.pods = pods or {"a": PodState("a", connected=True, assignment=STRICT)}
        self.probes: list[float] = []
        self.requests: list[tuple[float, str, str]] = []
        self.stopped: list[tuple[float, str, Shutdown]] = []
        self.clock = asyncio.get_running_loop().time
        self.began = self.clock()
        monkeypatch.setattr(isolation, "reachable", self._reachable)
        self.isolation = Isolation(
            "one", ("10.96.0.1", 443), self.pods.values, self._stop, self._attest, self.clock
        )
        self._task = asyncio.create_task(self.isolation.run())

    async def _reachable(self, host: str, port: int, seconds: float) -> bool:
        self.probes.append(self.clock() - self.began)
        if not self.api:
            await asyncio.sleep(seconds)
        return self.api

    async def _attest(self, member: Member, job_uid: str, seconds: float) -> bool:
        self.requests.append((self.clock() - self.began, member.node, job_uid))
        if not self.peer:
            await asyncio.sleep(seconds)
        return self.peer

    def _stop(self, uid: str, shutdown: Shutdown) -> None:
        self.stopped.append((self.clock() - self.began, uid, shutdown))
        self.pods[uid] = replace(self.pods[uid], shutdown=shutdown)

    async def hub_replies(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.isolation.reached_hub(self.clock())
            await asyncio.sleep(1.0)

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def test_an_isolated_node_stops_its_strict_job_once(
    virtual: Run,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work() -> None:
        surroundings = Surroundings(monkeypatch)
        await surroundings.hub_replies(30)  # the hub replies for the last time at 29 s
        assert (surroundings.probes, surroundings.requests) == ([], [])
        await asyncio.sleep(60)
        [(at, uid, shutdown)] = surroundings.stopped
        assert 49 <= at <= 49 + 2 * isolation.CHECK_SECONDS
        assert (uid, shutdown.exit_code, shutdown.immediate) == ("a", 75, True)
        assert "it reached only 0 of the job's 1 other nodes" in shutdown.reason
        assert 32 <= surroundings.probes[0] < 32.5
        assert {round(b - a, 2) for a, b in itertools.pairwise(surroundings.probes)} == {2.0}
        # The agent may request attestations only after the first probe of the API server has failed. It must
        # stop requesting them when its last Strict job has stopped.
        requested = [when for when, *_ in surroundings.requests]
        assert surroundings.probes[0] + isolation.PROBE_TIMEOUT <= requested[0] <= surroundings.probes[0] + 2
        assert {round(b - a, 2) for a, b in itertools.pairwise(requested)} == {1.0}
        assert max(requested[-1], surroundings.probes[-1]) < at
        await surroundings.end()

    virtual(work())


@pytest.mark.parametrize("who", ["api", "peer"])
def test_an_outage_of_the_control_plane_stops_nothing(
    virtual: Run,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    who: str,
) -> None:
    async def work() -> None:
        surroundings = Surroundings(monkeypatch)
        setattr(surroundings, who, True)
        await asyncio.sleep(300)
        assert surroundings.stopped == []
        assert len(surroundings.probes) > 100
        assert bool(surroundings.requests) is (who == "peer")
        # From here on neither the API server nor the peers respond, so the job must stop.
        began = surroundings.clock() - surroundings.began
        setattr(surroundings, who, False)
        await asyncio.sleep(60)
        [(at, *_)] = surroundings.stopped
        left = 20 - (fence.LEASE_SECONDS if who == "api" else 0.0)
        assert began + left - 3 <= at <= began + left + 2 * isolation.CHECK_SECONDS
        await surroundings.end()

    virtual(work())


def test_a_node_reconnected_in_time_stops_nothing(virtual: Run, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    async def work() -> None:
        surroundings = Surroundings(monkeypatch)
        for _ in range(5):
            await asyncio.sleep(18.5)
            await surroundings.hub_replies(1)
        assert surroundings.stopped == []
        await surroundings.end()

    virtual(work())


def test_a_reply_counts_from_the_time_of_its_request(virtual: Run, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    async def work() -> None:
        surroundings = Surroundings(monkeypatch)
        await asyncio.sleep(10)
        surroundings.isolation.reached_hub(surroundings.began + 4)
        # This reply answers an older heartbeat than the reply before, so it must change nothing.
        surroundings.isolation.reached_hub(surroundings.began + 2)
        await asyncio.sleep(20)
        [(at, *_)] = surroundings.stopped
        assert 24 <= at <= 24 + 2 * isolation.CHECK_SECONDS
        await surroundings.end()

    virtual(work())


def test_jobs_under_commit_fencing_are_left_alone(virtual: Run, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    async def work() -> None:
        surroundings = Surroundings(
            monkeypatch,
            a=PodState("a", connected=True, assignment=plan(1)),
            b=PodState("b", connected=True, assignment=replace(STRICT, job_uid="other")),
        )
        await asyncio.sleep(60)
        assert [uid for _, uid, _ in surroundings.stopped] == ["b"]
        assert {job for *_, job in surroundings.requests} == {"other"}
        await surroundings.end()
        surroundings = Surroundings(monkeypatch, a=PodState("a", connected=True, assignment=plan(1)))
        await asyncio.sleep(60)
        assert (surroundings.probes, surroundings.requests, surroundings.stopped) == ([], [], [])
        await surroundings.end()

    virtual(work())


def test_a_later_incarnation_can_be_stopped_too(virtual: Run, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    async def work() -> None:
        surroundings = Surroundings(monkeypatch)
        await asyncio.sleep(30)
        assert len(surroundings.stopped) == 1
        surroundings.pods["b"] = PodState("b", connected=True, assignment=replace(plan(2), strict=True))
        await surroundings.hub_replies(5)
        assert len(surroundings.stopped) == 1
        await asyncio.sleep(30)
        assert [uid for _, uid, _ in surroundings.stopped] == ["a", "b"]
        await surroundings.end()

    virtual(work())


def test_time_in_suspend_counts_toward_the_timeout(virtual: Run, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    async def work() -> None:
        surroundings = Surroundings(monkeypatch)
        await surroundings.hub_replies(5)
        running = surroundings.clock
        monkeypatch.setattr(surroundings.isolation, "_clock", lambda: running() + 60)
        await asyncio.sleep(2 * isolation.CHECK_SECONDS)
        assert len(surroundings.stopped) == 1
        await surroundings.end()

    virtual(work())


async def test_a_refused_connection_is_reachable_and_a_silent_one_is_not() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, backlog=1)
    port = server.sockets[0].getsockname()[1]
    assert await isolation.reachable("127.0.0.1", port, 5)
    server.close()
    await server.wait_closed()
    assert await isolation.reachable("127.0.0.1", port, 5)
    assert not await isolation.reachable("", 443, 5)
    with Deaf() as deaf:
        assert not await isolation.reachable("127.0.0.1", deaf.port, 0.3)


class Deaf:
    """A context manager with a listener whose queue is full. The kernel drops further SYNs to its port."""

    def __enter__(self) -> Deaf:
        import socket

        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(0)
        self.port: int = self._listener.getsockname()[1]
        self._callers = []
        for _ in range(2):
            caller = socket.socket()
            caller.setblocking(False)
            caller.connect_ex(("127.0.0.1", self.port))
            self._callers.append(caller)
        return self

    def __exit__(self, *_: object) -> None:
        for one in (*self._callers, self._listener):
            one.close()
