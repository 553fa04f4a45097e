"""Tests of the pipelines at both ends of a transfer: their order, their bounds and their errors."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

import pytest

from convoy_agents.tiercheck.chunk_pipeline import read_ahead, write_behind

COUNT = 20
LIMIT = 3


async def until(holds: Callable[[], bool]) -> None:
    """Let the tasks run until `holds` returns True."""
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - the code under test has no event to wait for
            await asyncio.sleep(0)


class Work:
    """Calls that wait until the test releases them. `most`: the maximum number of calls at the same time."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.done: list[int] = []
        self.cancelled: list[int] = []
        self.gates = [asyncio.Event() for _ in range(COUNT)]

    async def call(self, number: int) -> int:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.gates[number].wait()
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        finally:
            self.running -= 1
        self.done.append(number)
        return number


async def settle() -> None:
    """Let all tasks run until each of them waits."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_chunks_are_read_ahead_in_order_and_within_the_bound() -> None:
    work, found = Work(), []
    async with contextlib.aclosing(read_ahead(range(COUNT), work.call, LIMIT)) as results:
        first = asyncio.ensure_future(anext(results))
        await until(lambda: work.running == LIMIT)
        await settle()
        assert work.running == LIMIT
        for gate in reversed(work.gates):
            gate.set()
        found = [await first, *[number async for number in results]]
    assert found == list(range(COUNT)) and work.most == LIMIT


async def test_a_failed_read_is_raised_in_its_turn() -> None:
    async def read(number: int) -> int:
        if number == 2:
            raise ZeroDivisionError
        return number

    found = []
    with pytest.raises(ZeroDivisionError):
        async with contextlib.aclosing(read_ahead(range(COUNT), read, LIMIT)) as results:
            async for number in results:
                found.append(number)
    assert found == [0, 1]


async def test_a_sender_that_stops_cancels_the_reads_that_are_left() -> None:
    work = Work()
    work.gates[0].set()
    async with contextlib.aclosing(read_ahead(range(COUNT), work.call, LIMIT)) as results:
        assert await anext(results) == 0
        await until(lambda: work.running == LIMIT)
    await until(lambda: work.running == 0)
    assert work.cancelled == [1, 2, 3]


async def test_more_chunks_than_the_bound_wait_until_one_is_written() -> None:
    work = Work()
    async with write_behind(LIMIT) as writes:
        for number in range(LIMIT):
            await writes.start(partial(work.call, number))
        late = asyncio.ensure_future(writes.start(partial(work.call, LIMIT)))
        await settle()
        assert not late.done() and work.running == LIMIT
        # The order of the writes does not matter: the last one ends first.
        work.gates[LIMIT - 1].set()
        await late
        for gate in work.gates:
            gate.set()
    assert sorted(work.done) == list(range(LIMIT + 1)) and work.most == LIMIT


async def test_the_end_of_the_block_waits_for_all_writes() -> None:
    work = Work()

    async def transfer() -> None:
        async with write_behind(LIMIT) as writes:
            await writes.start(partial(work.call, 0))

    task = asyncio.ensure_future(transfer())
    await until(lambda: work.running == 1)
    await settle()
    assert not task.done()
    work.gates[0].set()
    await task
    assert work.done == [0]


@pytest.mark.parametrize("after", [0, COUNT], ids=["the last write", "writes after it"])
async def test_a_failed_write_ends_the_transfer(after: int) -> None:
    started = 0

    async def fail() -> None:
        raise ZeroDivisionError

    async def write() -> None:
        nonlocal started
        started += 1

    with pytest.raises(ZeroDivisionError):
        async with write_behind(1) as writes:
            await writes.start(fail)
            for _ in range(after):
                await writes.start(write)
    assert started == 0


async def test_a_cancelled_transfer_cancels_its_writes() -> None:
    work = Work()

    async def transfer() -> None:
        async with write_behind(LIMIT) as writes:
            await writes.start(partial(work.call, 0))
            await asyncio.Event().wait()

    task = asyncio.ensure_future(transfer())
    await until(lambda: work.running == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: work.running == 0)
    assert work.cancelled == [0]
