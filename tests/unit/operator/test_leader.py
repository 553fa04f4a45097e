"""Tests of leader election in virtual time, and of the watchdog in real time."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.aio.client.exceptions import ApiException

from convoy_operator import leader
from convoy_operator.leader import Elector, LeadershipLost, Watchdog, address_in, identity_of


class Lease:
    """The Lease at a fake API server, with its resourceVersion."""

    def __init__(self) -> None:
        self.record: Any = None
        self.version = 0
        self.down: set[str] = set()
        self.holders: list[str] = []


class Lock:
    """A LeaseLock that uses the fake Lease."""

    def __init__(self, lease: Lease, identity: str) -> None:
        self.lease, self.identity = lease, identity
        self.name = self.namespace = "n"
        self._version = 0

    async def get(self, name: str, namespace: str) -> tuple[bool, Any]:
        await asyncio.sleep(0.01)
        if self.identity in self.lease.down:
            return False, ApiException(status=0, reason="down")
        if self.lease.record is None:
            return False, ApiException(status=404)
        self._version = self.lease.version
        return True, self.lease.record

    async def create(self, name: str, namespace: str, record: Any) -> bool:
        return await self.update(name, namespace, record)

    async def update(self, name: str, namespace: str, record: Any) -> bool:
        await asyncio.sleep(0.01)
        if self.identity in self.lease.down or self._version != self.lease.version:
            return False
        self.lease.version += 1
        self.lease.record = record
        self.lease.holders.append(self.identity)
        return True


class NoWatchdog:
    def feed(self, at: float) -> None: ...
    def disarm(self) -> None: ...


@pytest.fixture(autouse=True)
def virtual_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    def monotonic() -> float:
        return asyncio.get_running_loop().time()

    monkeypatch.setattr(leader, "time", SimpleNamespace(monotonic=monotonic))


def elector(lease: Lease, name: str) -> Elector:
    lock = Lock(lease, identity_of(name, "0", f"{name}:8471"))
    return Elector(
        lock,  # type: ignore[arg-type]
        lease_seconds=8,
        renew_seconds=5,
        retry_seconds=1,
        watchdog=NoWatchdog(),  # type: ignore[arg-type]
    )


async def forever() -> None:
    await asyncio.Event().wait()


async def until(check: Any, seconds: float = 60) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not check():
        assert loop.time() - began < seconds, "the watchdog must not fire in time"
        await asyncio.sleep(0.05)
    return loop.time() - began


def test_the_lease_has_the_address_of_the_leaders_hub() -> None:
    assert address_in(identity_of("pod-1", "ab12", "[fd00::1]:8471")) == "[fd00::1]:8471"
    assert address_in("something-else") == ""


def test_one_replica_leads_and_the_other_knows_its_address(virtual: Any) -> None:
    async def scenario() -> None:
        lease = Lease()
        a, b = elector(lease, "a"), elector(lease, "b")
        tasks = [asyncio.create_task(a.run(forever))]
        await until(lambda: a.leading)
        tasks.append(asyncio.create_task(b.run(forever)))
        await asyncio.sleep(120)
        assert a.leading and not b.leading
        assert b.address == "a:8471"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    virtual(scenario())


def test_a_leader_that_stops_releases_the_lease(virtual: Any) -> None:
    async def scenario() -> None:
        lease = Lease()
        a, b = elector(lease, "a"), elector(lease, "b")
        first, second = asyncio.create_task(a.run(forever)), None
        await until(lambda: a.leading)
        second = asyncio.create_task(b.run(forever))
        await asyncio.sleep(5)
        first.cancel()
        assert await until(lambda: b.leading) < 3.5
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)

    virtual(scenario())


def test_a_leader_knows_the_end_of_the_previous_leadership(virtual: Any) -> None:
    async def scenario() -> None:
        lease = Lease()
        a, b = elector(lease, "a"), elector(lease, "b")
        first = asyncio.create_task(a.run(forever))
        await until(lambda: a.leading)
        await asyncio.sleep(5)
        assert a.previous_renewal is None, "there was no previous leader"
        lease.down.add(a._lock.identity)
        second = asyncio.create_task(b.run(forever))
        renewed = datetime.fromisoformat(lease.record.renew_time).replace(tzinfo=UTC)
        await until(lambda: b.leading)
        await asyncio.sleep(5)
        assert b.previous_renewal == renewed, "its own renewals do not count"
        for task in (first, second):
            task.cancel()
        await asyncio.gather(first, second, return_exceptions=True)

    virtual(scenario())


def test_a_leader_that_cannot_renew_stops_before_another_starts(virtual: Any) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        lease = Lease()
        a, b = elector(lease, "a"), elector(lease, "b")
        first = asyncio.create_task(a.run(forever))
        await until(lambda: a.leading)
        second = asyncio.create_task(b.run(forever))
        await asyncio.sleep(5)
        lease.down.add(a._lock.identity)
        began = loop.time()
        await until(lambda: not a.leading)
        ended_after = loop.time() - began
        assert ended_after < 7
        assert not b.leading, "two replicas never lead together"
        with pytest.raises(LeadershipLost):
            await first
        await until(lambda: b.leading)
        assert ended_after < loop.time() - began < 11
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)

    virtual(scenario())


def test_a_leader_without_the_lease_stops_immediately(virtual: Any) -> None:
    async def scenario() -> None:
        lease = Lease()
        a = elector(lease, "a")
        task = asyncio.create_task(a.run(forever))
        await until(lambda: a.leading)
        lease.record.holder_identity = "b_0@b:8471"
        lease.version += 1
        with pytest.raises(LeadershipLost, match="b_0@b:8471"):
            await asyncio.wait_for(task, 2.5)
        assert lease.record.holder_identity == "b_0@b:8471", "a replica does not release another's Lease"

    virtual(scenario())


def test_a_leader_survives_a_short_outage_of_the_server(virtual: Any) -> None:
    async def scenario() -> None:
        lease = Lease()
        a = elector(lease, "a")
        task = asyncio.create_task(a.run(forever))
        await until(lambda: a.leading)
        for _ in range(5):
            lease.down.add(a._lock.identity)
            await asyncio.sleep(3.5)
            lease.down.clear()
            await asyncio.sleep(3)
        assert a.leading and not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    virtual(scenario())


def test_the_end_of_the_work_ends_the_leadership(virtual: Any) -> None:
    async def scenario() -> None:
        async def fails() -> None:
            await asyncio.sleep(1)
            raise RuntimeError("work failed")

        lease = Lease()
        with pytest.raises(RuntimeError, match="work failed"):
            await elector(lease, "a").run(fails)
        assert lease.record.lease_duration == "1", "the Lease is released"

    virtual(scenario())


def test_the_watchdog_kills_a_leader_that_does_not_renew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "time", time)
    bitten = threading.Event()
    dog = Watchdog(0.2, bitten.set)
    dog.start()
    try:
        dog.feed(time.monotonic())
        assert bitten.wait(5)
    finally:
        dog.stop()


def test_the_watchdog_does_not_kill_followers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "time", time)
    bitten = threading.Event()
    dog = Watchdog(0.05, bitten.set)
    dog.start()
    try:
        dog.feed(time.monotonic())
        dog.disarm()
        assert not bitten.wait(0.3)
    finally:
        dog.stop()
