"""Tests of KeyedLock. Only one task at a time may hold the lock of a key, and an unused key must have no
entry.
"""

from __future__ import annotations

import asyncio

import pytest

from convoy_agents.tiercheck.keyed_lock import KeyedLock


class Holders:
    """The tasks that hold the lock of a key, and the order in which they got it."""

    def __init__(self) -> None:
        self.lock: KeyedLock[str] = KeyedLock()
        self.here: set[str] = set()
        self.order: list[str] = []

    async def work(self, name: str, leave: asyncio.Event, key: str = "thing") -> None:
        async with self.lock.hold(key):
            self.here.add(name)
            self.order.append(name)
            assert len(self.here) == 1, self.here
            await leave.wait()
            self.here.discard(name)


async def run_until_all_wait() -> None:
    """Let all tasks run until each of them waits."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("later", [0, 1, 2, 3])
async def test_a_third_task_waits_during_the_handover_to_the_second(later: int) -> None:
    """The first task releases the lock, and the second task is about to get it. In this interval the third
    task requests the lock, `later` iterations of the event loop after the release. It must wait.
    """
    at, first, last = Holders(), asyncio.Event(), asyncio.Event()
    tasks = [asyncio.create_task(at.work("a", first))]
    await run_until_all_wait()
    tasks.append(asyncio.create_task(at.work("b", last)))
    await run_until_all_wait()
    first.set()
    for _ in range(later):
        await asyncio.sleep(0)
    tasks.append(asyncio.create_task(at.work("c", last)))
    await run_until_all_wait()
    assert at.order == ["a", "b"] and len(at.lock) == 1
    last.set()
    await asyncio.gather(*tasks)
    assert at.order == ["a", "b", "c"] and not len(at.lock)


async def test_a_cancelled_waiter_does_not_block_the_next() -> None:
    at, first, last = Holders(), asyncio.Event(), asyncio.Event()
    a = asyncio.create_task(at.work("a", first))
    await run_until_all_wait()
    b, c = asyncio.create_task(at.work("b", last)), asyncio.create_task(at.work("c", last))
    await run_until_all_wait()
    b.cancel()
    first.set()
    last.set()
    assert isinstance((await asyncio.gather(a, b, c, return_exceptions=True))[1], asyncio.CancelledError)
    assert at.order == ["a", "c"] and not len(at.lock)


async def test_locks_of_other_keys_are_independent() -> None:
    at, leave = Holders(), asyncio.Event()
    leave.set()
    async with at.lock.hold("one"):
        await at.work("b", leave, "another")
