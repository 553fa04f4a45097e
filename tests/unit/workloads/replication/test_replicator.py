"""Tests of one replicator at a time: acknowledgement, catching up, readiness, bounds and failures, in virtual
time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import pytest
from tests.unit.workloads.replication.simulation import Job, Node
from tests.unit.workloads.replication.virtual_time import run

from convoy_workloads.serving.replication.catching_up import STALLED_SECONDS
from convoy_workloads.serving.replication.messages import (
    Busy,
    Message,
    Pull,
    Push,
    Sender,
    StateBegin,
    StateChunk,
)
from convoy_workloads.serving.replication.operation import Operation, Stamp
from convoy_workloads.serving.replication.settings import (
    LogFailed,
    NotReady,
    NotReplicated,
    Overloaded,
    Settings,
)

STRANGER = bytes(15) + b"s"
Scenario = Callable[[Job], Coroutine[Any, Any, None]]


def quiet_job(**settings: Any) -> Job:
    """Return a job with a network that loses nothing."""
    return Job(random.Random(1), settings=Settings(**settings), loss=0.0, repetition=0.0)


def play(scenario: Scenario, **settings: Any) -> None:
    """Run a scenario, and end its nodes."""

    async def main() -> None:
        job = quiet_job(**settings)
        try:
            await scenario(job)
            for node in job.nodes.values():
                node.check()
        finally:
            for node in job.nodes.values():
                node.end()
            for task in job.tasks:
                task.cancel()
            await asyncio.sleep(0)

    run(main())


async def until(condition: Callable[[], bool], seconds: float = 100.0) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.01)


def ready(*nodes: Node) -> Callable[[], bool]:
    return lambda: all(one.replicator.caught_up.is_set() for one in nodes)


async def pair(job: Job) -> tuple[Node, Node]:
    """Return two replicas that serve and know each other."""
    first, second = job.start(), job.start()
    await until(lambda: not job.tasks and ready(first, second)())
    return first, second


async def fails(what: Awaitable[None], error: type[Exception], words: str = ".") -> None:
    with pytest.raises(error, match=words):
        await what


def gated(job: Job) -> tuple[Node, asyncio.Event]:
    """Return a fresh replica that has its restored state when the event is set."""
    node, gate = job.start(), asyncio.Event()
    restore = node.store.restore

    async def wait(parts: AsyncIterator[bytes]) -> None:
        await restore(parts)
        restored, node.store.values = node.store.values, {}
        await gate.wait()
        node.store.values = restored

    node.store.restore = wait  # type: ignore[method-assign]
    return node, gate


def test_an_operation_is_acknowledged_when_a_peer_has_it() -> None:
    async def scenario(job: Job) -> None:
        first, second = await pair(job)
        await first.replicator.append([(b"k", b"v"), (b"l", None)])
        assert second.store.values == first.store.values == {b"k": b"v", b"l": None}
        assert [one.stamp.sequence for one in first.disk.operations] == [1, 2]

    play(scenario)


def test_a_replica_that_is_alone_acknowledges_at_once() -> None:
    async def scenario(job: Job) -> None:
        node = job.start()
        await until(ready(node))
        at = job.now
        await node.replicator.append([(b"k", b"v")])
        assert job.now - at < 0.1 and node.disk.operations

    play(scenario)


def test_an_operation_that_no_peer_confirms_is_an_error_but_reaches_peers_later() -> None:
    async def scenario(job: Job) -> None:
        first, second = await pair(job)
        job.parted = {first.address}
        at = job.now
        await fails(first.replicator.append([(b"k", b"v")]), NotReplicated, "1 of 1 other replicas")
        assert 5 <= job.now - at < 5.1 and not second.store.values
        job.parted = set()
        await until(lambda: second.store.values == {b"k": b"v"})
        await until(lambda: first.replicator.unacknowledged == 0)

    play(scenario)


@pytest.mark.parametrize(("copies", "works"), [(0, True), (1, True), (2, False)])
def test_the_number_of_copies_can_be_set(copies: int, works: bool) -> None:
    async def scenario(job: Job) -> None:
        first, _ = await pair(job)
        if works:
            await first.replicator.append([(b"k", b"v")])
        else:
            await fails(first.replicator.append([(b"k", b"v")]), NotReplicated)

    play(scenario, copies=copies)


def test_a_peer_that_is_away_or_slow_holds_no_other() -> None:
    async def scenario(job: Job) -> None:
        nodes = [job.start() for _ in range(3)]
        await until(ready(*nodes))
        job.slow = {nodes[1].address: 1e5}
        await nodes[0].replicator.append([(b"k", b"v")])
        at = job.now
        for number in range(20):
            await nodes[0].replicator.append([(b"k", str(number).encode())])
        assert job.now - at < 2

    play(scenario)


def test_waiting_operations_are_bounded_and_refused_before_they_are_written() -> None:
    async def scenario(job: Job) -> None:
        first, _ = await pair(job)
        job.parted = {first.address}
        waiting = [asyncio.ensure_future(first.replicator.append([(b"k", b"v")])) for _ in range(3)]
        await until(lambda: first.replicator.unacknowledged == 3)
        await fails(first.replicator.append([(b"k", b"w"), (b"l", b"w")]), Overloaded)
        assert {one.payload for one in first.disk.operations} <= {b"v"}
        job.parted = set()
        await asyncio.gather(*waiting)
        await first.replicator.append([(b"k", b"w"), (b"l", b"w")])

    play(scenario, waiting_operations=4)


def test_a_client_that_leaves_leaves_nothing_behind() -> None:
    async def scenario(job: Job) -> None:
        first, second = await pair(job)
        gone = asyncio.ensure_future(first.replicator.append([(b"k", b"v")]))
        await asyncio.sleep(0)
        gone.cancel()
        await until(lambda: second.store.values == {b"k": b"v"})
        await until(lambda: first.replicator.unacknowledged == 0)

    play(scenario)


def test_after_an_error_of_the_log_no_number_is_used_twice() -> None:
    async def scenario(job: Job) -> None:
        first, second = await pair(job)
        await first.replicator.append([(b"k", b"1")])
        job.log_errors = 1.0
        for _ in range(5):
            await fails(first.replicator.append([(b"k", b"2")]), LogFailed, "the disk is full")
        job.log_errors = 0.0
        assert len(first.replicator._origins) == 2
        assert first.store.values == {b"k": b"1"}
        await first.replicator.append([(b"k", b"3")])
        assert second.store.values == {b"k": b"3"} and first.replicator.unacknowledged == 0
        assert len({one.stamp.origin for one in job.made.values()}) == 6
        assert sorted(first.replicator.log.vector.values()) == [1, 1]

    play(scenario)


def test_nothing_is_written_before_the_replica_has_caught_up() -> None:
    async def scenario(job: Job) -> None:
        node = job.start()
        await fails(node.replicator.append([(b"k", b"v")]), NotReady)
        await until(ready(node))
        await fails(node.replicator.append([(b"", b"v")]), ValueError)
        await node.replicator.append([])
        assert not node.disk.operations

    play(scenario)


def test_a_job_that_starts_fresh_becomes_ready() -> None:
    async def scenario(job: Job) -> None:
        nodes = [job.start() for _ in range(4)]
        await until(ready(*nodes), 5)

    play(scenario)


def test_without_a_report_of_peers_a_replica_serves_after_the_deadline() -> None:
    async def scenario(job: Job) -> None:
        node = job.start()
        for task in job.tasks:
            task.cancel()
        await asyncio.sleep(29)
        assert not ready(node)()
        await until(ready(node), 3)

    play(scenario)


@pytest.mark.parametrize("has_data", [False, True])
def test_a_replica_whose_peers_are_away_serves_only_if_it_has_data(has_data: bool) -> None:
    async def scenario(job: Job) -> None:
        first, second = await pair(job)
        await first.replicator.append([(b"k", b"v")])
        second.end()
        job.parted = {second.address}
        job.start(first.disk if has_data else None, second.address)
        node = job.nodes[second.address]
        await asyncio.sleep(25)
        assert not ready(node)()
        await asyncio.sleep(15)
        assert ready(node)() is has_data
        job.parted = set()
        await until(ready(node))
        assert node.store.values == {b"k": b"v"}

    play(scenario)


def test_a_peer_that_is_away_is_left_out_if_another_one_responds() -> None:
    async def scenario(job: Job) -> None:
        nodes = [job.start() for _ in range(3)]
        await until(ready(*nodes))
        await nodes[0].replicator.append([(b"k", b"v")])
        await asyncio.sleep(5)
        job.parted = {nodes[2].address}
        fresh = job.start()
        await until(ready(fresh), 40)
        assert fresh.store.values == {b"k": b"v"}

    play(scenario)


def test_a_fresh_replica_restores_a_state_and_what_arrives_meanwhile() -> None:
    async def scenario(job: Job) -> None:
        first, second = await pair(job)
        for number in range(20):
            await first.replicator.append([(f"k{number}".encode(), b"1" * 50)])
        fresh, gate = gated(job)
        await until(lambda: fresh.store.restored == 1 and not job.tasks)
        await second.replicator.append([(b"k3", b"2"), (b"new", b"2")])
        await until(lambda: fresh.replicator.log.stamp(b"new") is not None)
        assert not fresh.store.values and not ready(fresh)(), "operations wait for the state"
        gate.set()
        await until(ready(fresh))
        assert fresh.store.restored == 1 and fresh.store.values == first.store.values
        assert fresh.store.values[b"k3"] == b"2"

    play(scenario, retained_bytes=1000)


def test_nobody_waits_for_the_copies_of_a_replica_that_catches_up() -> None:
    async def scenario(job: Job) -> None:
        first = job.start()
        await until(ready(first))
        for number in range(20):
            await first.replicator.append([(f"k{number}".encode(), b"1" * 50)])
        fresh, gate = gated(job)
        await until(lambda: fresh.store.restored == 1 and not job.tasks)
        await first.replicator.append([(b"k3", b"2")])
        assert first.replicator.required() == 0 and not ready(fresh)()
        gate.set()
        await until(lambda: first.replicator.required() == 1)
        await until(ready(fresh))
        assert fresh.store.values[b"k3"] == b"2", "acknowledged without a copy, and not there"

    play(scenario, retained_bytes=1000)


def test_an_engine_without_snapshots_sends_winners() -> None:
    async def scenario(job: Job) -> None:
        job.snapshots = False
        first, _ = await pair(job)
        for number in range(20):
            await first.replicator.append([(f"k{number % 7}".encode(), str(number).encode() * 50)])
        fresh = job.start()
        await until(ready(fresh))
        assert fresh.store.restored == 0 and fresh.store.values == first.store.values

    play(scenario, retained_bytes=1000, batch_bytes=600)


def test_a_replica_with_operations_keeps_them_when_it_merges_a_state() -> None:
    async def scenario(job: Job) -> None:
        first, second = await pair(job)
        job.parted = {first.address}
        both = [first.replicator, second.replicator]
        for number in range(15):
            for name, one in zip("ab", both, strict=True):
                entry = (f"{name}{number}".encode(), b"v" * 100)
                await fails(one.append([entry]), NotReplicated)
        job.parted = set()
        await until(lambda: len(first.store.values) == len(second.store.values) == 30)
        assert (
            first.store.values == second.store.values and first.store.restored == second.store.restored == 0
        )

    play(scenario, retained_bytes=1000, ack_seconds=0.1)


def test_a_state_that_is_refused_is_read_again() -> None:
    async def scenario(job: Job) -> None:
        first, _ = await pair(job)
        for number in range(20):
            await first.replicator.append([(f"k{number}".encode(), b"1" * 50)])
        fresh = job.start()
        restore, errors = fresh.store.restore, [OSError("no space"), ValueError("bad magic")]

        async def failing(parts: AsyncIterator[bytes]) -> None:
            if errors:
                await anext(parts)
                raise errors.pop()
            await restore(parts)

        fresh.store.restore = failing  # type: ignore[method-assign]
        await until(ready(fresh))
        assert not errors and fresh.store.values == first.store.values

    play(scenario, retained_bytes=1000)


async def _parts(found: AsyncIterator[Message]) -> list[Message]:
    return [one async for one in found]


def test_a_replica_that_catches_up_supplies_no_state_and_the_number_of_states_is_bounded() -> None:
    async def scenario(job: Job) -> None:
        first, _ = await pair(job)
        await first.replicator.append([(b"k", b"v")])
        fresh = job.start()
        request = Pull(Sender(STRANGER), {}, whole=True)
        assert await _parts(fresh.replicator.on_state(request)) == [Busy()]
        open_ones = [first.replicator.on_state(request) for _ in range(2)]
        for one in open_ones:
            assert isinstance(await anext(one), StateBegin)
        assert await _parts(first.replicator.on_state(request)) == [Busy()]
        await open_ones[0].aclose()  # type: ignore[attr-defined]
        found = await _parts(first.replicator.on_state(request))
        assert isinstance(found[2], StateChunk) and len(found) == 4
        stalled = first.replicator.on_state(request)
        assert isinstance(await anext(stalled), StateBegin)
        assert await _parts(first.replicator.on_state(request)) == [Busy()]
        await asyncio.sleep(STALLED_SECONDS)
        assert len(await _parts(first.replicator.on_state(request))) == 4

    play(scenario)


def test_a_replica_that_cannot_defer_more_waits_only_while_it_reads_a_state() -> None:
    async def scenario(job: Job) -> None:
        node = job.start()
        many = [Operation(Stamp(n, STRANGER, n), b"k%d" % n, b"v" * 100) for n in range(1, 30)]
        async with node.replicator._join._reading:
            assert node.replicator.on_push(Push(Sender(STRANGER), many[:20])) != Busy()
            assert node.replicator.on_push(Push(Sender(STRANGER), many[20:])) == Busy()
            assert not node.store.values
        assert node.replicator.on_push(Push(Sender(STRANGER), many[20:])) != Busy()
        assert len(node.store.values) == 29

    play(scenario, deferred_bytes=1000)


def test_a_replica_that_was_not_reported_yet_counts_as_a_peer() -> None:
    async def scenario(job: Job) -> None:
        node = job.start()
        await until(ready(node))
        node.replicator.on_pull(Pull(Sender(STRANGER)))
        assert node.replicator.required() == 1
        waiting = asyncio.ensure_future(node.replicator.append([(b"k", b"v")]))
        await asyncio.sleep(1)
        assert not waiting.done()
        node.replicator.on_pull(Pull(Sender(STRANGER), node.replicator.log.vector))
        await waiting
        node.replicator.on_pull(Pull(Sender(STRANGER, drains=True)))
        assert node.replicator.required() == 0
        node.replicator.on_pull(Pull(Sender(STRANGER[::-1])))
        await asyncio.sleep(11)
        assert node.replicator.required() == 0

    play(scenario)


def test_a_removed_peer_counts_no_more_although_it_still_sends() -> None:
    async def scenario(job: Job) -> None:
        first, second = await pair(job)
        first.replicator.set_peers(first.address, [])
        await asyncio.sleep(3)
        assert first.replicator.required() == 0
        first.replicator.set_peers(first.address, [second.address, first.address])
        assert first.replicator.required() == 1
        await first.replicator.append([(b"k", b"v")])

    play(scenario)


def test_a_replica_drains_when_a_peer_has_all_that_it_has() -> None:
    async def scenario(job: Job) -> None:
        first, second = await pair(job)
        job.parted = {first.address}
        await fails(first.replicator.append([(b"k", b"v")]), NotReplicated)
        draining = asyncio.ensure_future(first.replicator.drain())
        await asyncio.sleep(10)
        assert not draining.done()
        job.parted = set()
        await draining
        assert second.store.values == {b"k": b"v"} and second.replicator.contacts.drains(
            first.replicator.process
        )

    play(scenario)


def test_replicas_that_drain_together_do_not_wait_for_each_other() -> None:
    async def scenario(job: Job) -> None:
        first, second = await pair(job)
        await first.replicator.append([(b"k", b"v")])
        both = [one.replicator.drain() for one in (first, second)]
        await asyncio.wait_for(asyncio.gather(*both), 10)
        assert first.store.values == second.store.values

    play(scenario)


def test_all_peers_have_it_so_nothing_is_retained() -> None:
    async def scenario(job: Job) -> None:
        nodes = [job.start() for _ in range(3)]
        await until(ready(*nodes))
        for one in nodes:
            await one.replicator.append([(b"k", b"v")])
        await until(lambda: not any(one.replicator.log.retained for one in nodes), 20)
        assert all(sum(one.replicator.log.vector.values()) == 3 for one in nodes)

    play(scenario)


def test_a_peer_at_its_own_address_is_left_alone() -> None:
    async def scenario(job: Job) -> None:
        node = job.start()
        await until(ready(node))
        node.replicator.set_peers("", [node.address])
        await asyncio.sleep(5)
        await fails(node.replicator.append([(b"k", b"v")]), NotReplicated)
        assert node.replicator.log.known(node.replicator._origin) == 1

    play(scenario)
