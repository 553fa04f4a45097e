"""Tests of the guarantees of the work queue, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy_operator.queue import WorkQueue

from .conftest import VirtualLoop


def now() -> float:
    return asyncio.get_running_loop().time()


async def get(queue: WorkQueue[str], seconds: float = 1000.0) -> str | None:
    """Return the next key; None if no key comes within `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            return await queue.get()
    except TimeoutError:
        return None


def get_at_once(queue: WorkQueue[str], key: str) -> None:
    """Get a key that is already due, and check that it is `key`."""
    with pytest.raises(StopIteration, match=key):
        queue.get().send(None)


def test_equal_keys_are_queued_once(virtual: Any) -> None:
    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue()
        for _ in range(5):
            queue.add("a")
        assert await get(queue) == "a"
        queue.done("a")
        assert await get(queue) is None

    virtual(scenario())


def test_due_keys_do_not_wait_for_timers_of_other_keys(virtual: Any) -> None:
    """Let a worker get one of two due keys just before the timer fires, and add a later key. The other due
    key must not wait for the later one.
    """

    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue()

        def come_back() -> None:
            get_at_once(queue, "a")
            queue.add("c", 10)

        began = now()
        asyncio.get_running_loop().call_later(1, come_back)
        queue.add("a", 1)
        queue.add("b", 1)
        assert (await get(queue), now() - began) == ("b", 1)

    virtual(scenario())


def test_a_timer_of_a_key_in_work_does_not_advance_other_keys(virtual: Any) -> None:
    """Let a worker get a due key before the timer fires. The timer must not make the next key due early."""

    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue()

        began = now()
        asyncio.get_running_loop().call_later(1, get_at_once, queue, "a")
        queue.add("a", 1)
        queue.add("b", 9)
        assert (await get(queue), now() - began) == ("b", 9)

    virtual(scenario())


def test_a_key_has_one_worker_and_runs_again_when_dirty(virtual: Any) -> None:
    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        assert await get(queue) == "a"
        queue.add("a")
        queue.add("a")
        assert await get(queue, 5) is None
        queue.done("a")
        assert await get(queue) == "a"
        queue.done("a")
        assert await get(queue) is None

    virtual(scenario())


def test_a_closed_queue_drops_keys(virtual: Any) -> None:
    async def scenario() -> None:
        waits: list[float] = []
        queue: WorkQueue[str] = WorkQueue(open=False, on_wait=waits.append)
        queue.add("a")
        queue.add("b", 5)
        await asyncio.sleep(60)
        assert queue.depth == 0 and not queue._entries and not queue._heap
        queue.open = True
        assert await get(queue, 60) is None
        queue.add("a")
        assert await get(queue) == "a" and waits == [0]

    virtual(scenario())


def test_changes_within_the_debounce_are_merged_without_extra_delay(virtual: Any) -> None:
    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue()
        began = now()
        queue.add("a", 0.2)
        await asyncio.sleep(0.1)
        queue.add("a", 0.2)
        assert await get(queue) == "a"
        assert now() - began == pytest.approx(0.2, abs=1e-3)

    virtual(scenario())


def test_an_urgent_change_advances_a_key(virtual: Any) -> None:
    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue()
        began = now()
        queue.add("a", 60)
        queue.add("a")
        assert await get(queue) == "a"
        assert now() == began
        queue.done("a")
        assert await get(queue) is None, "the later time is dropped"

    virtual(scenario())


def test_back_off_doubles_up_to_its_limit_and_resets_after_success(virtual: Any) -> None:
    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue(0.5, 60)
        queue.add("a")
        waits = []
        for _ in range(12):
            began = now()
            assert await get(queue) == "a"
            waits.append(now() - began)
            queue.retry("a")
            queue.done("a")
        for failures, wait in enumerate(waits[1:]):
            ceiling = min(60.0, 0.5 * 2**failures)
            assert ceiling / 2 <= wait <= ceiling + 1e-3
        assert await get(queue) == "a"
        queue.reset_backoff("a")
        queue.done("a")
        queue.add("a")
        assert await get(queue) == "a"
        assert queue.retry("a") <= 0.5
        queue.done("a")

    virtual(scenario())


def test_only_a_spec_change_cuts_a_back_off_short(virtual: Any) -> None:
    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue(10, 60)
        queue.add("a")
        assert await get(queue) == "a"
        queue.retry("a")
        queue.done("a")
        queue.add("a", 0.1)
        assert await get(queue, 4) is None
        began = now()
        queue.add("a")
        assert await get(queue) == "a"
        assert now() == began

    virtual(scenario())


def test_an_urgent_change_during_a_failing_run_skips_the_back_off(virtual: Any) -> None:
    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue(10, 60)
        queue.add("a")
        assert await get(queue) == "a"
        queue.add("a")
        queue.retry("a")
        queue.done("a")
        assert await get(queue, 0.5) == "a"

    virtual(scenario())


def test_live_keys_have_priority_and_others_are_not_starved(virtual: Any) -> None:
    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue()
        for n in range(5):
            queue.add(f"low-{n}", high=False)
        for n in range(20):
            queue.add(f"high-{n}")
        order = []
        for _ in range(25):
            key = await get(queue)
            assert key is not None
            order.append(key)
            queue.done(key)
        assert order[0] == "high-0"
        assert "low-0" in order[:10]
        assert [key for key in order if key.startswith("high")] == [f"high-{n}" for n in range(20)]

    virtual(scenario())


def test_a_change_raises_the_priority_of_a_waiting_key(virtual: Any) -> None:
    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue()
        for key in ("x", "y", "z"):
            queue.add(key, high=False)
        queue.add("z")
        assert [await get(queue) for _ in range(3)] == ["z", "x", "y"]

    virtual(scenario())


def test_a_cancelled_waiter_passes_its_wake_up_to_the_next(virtual: Any) -> None:
    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue()
        first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.add("a")
        first.cancel()
        assert await asyncio.wait_for(second, 1) == "a"

    virtual(scenario())


def test_far_deadlines_of_a_busy_key_do_not_accumulate(virtual: Any) -> None:
    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue()
        for _ in range(1000):
            queue.add("a", 3600)
            queue.add("a")
            assert await get(queue) == "a"
            queue.done("a")
        assert len(queue._heap) < 100

    virtual(scenario())


STEPS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from([0.0, 0.1, 0.15, 3.0]), st.booleans(), st.booleans()),
    max_size=60,
)


@given(steps=STEPS, seed=st.integers(0, 2**16))
def test_every_added_key_is_processed_later_and_never_concurrently(
    steps: list[tuple[str, float, bool, bool]], seed: int
) -> None:
    async def scenario() -> None:
        rng = random.Random(seed)
        queue: WorkQueue[str] = WorkQueue(0.5, 4, rng)
        running: Counter[str] = Counter()
        last_added: dict[str, float] = {}
        last_begun: dict[str, float] = {}

        async def worker() -> None:
            while True:
                key = await queue.get()
                running[key] += 1
                assert running[key] == 1
                last_begun[key] = now()
                await asyncio.sleep(rng.choice([0, 0.05, 1]))
                if rng.random() < 0.2:
                    queue.retry(key)
                else:
                    queue.reset_backoff(key)
                running[key] -= 1
                queue.done(key)

        workers = [asyncio.create_task(worker()) for _ in range(3)]
        for key, delay, high, pause in steps:
            queue.add(key, delay, high=high)
            last_added[key] = now()
            if pause:
                await asyncio.sleep(0.07)
        await asyncio.sleep(600)
        for key, added in last_added.items():
            assert last_begun[key] >= added
            assert key not in queue
        assert queue.depth == 0 and not queue._entries
        for task in workers:
            assert not task.done()
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    loop = VirtualLoop()
    try:
        loop.run_until_complete(scenario())
    finally:
        loop.close()
