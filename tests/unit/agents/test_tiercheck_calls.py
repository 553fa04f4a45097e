"""Tests of calls to a store that hangs. The callers must get a timeout, and calls to other stores must
succeed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from convoy_agents.pods.assignment import Assignment, MemoryTiers, StoreUse
from convoy_agents.tiercheck import remote
from convoy_agents.tiercheck.link import Encoders
from convoy_agents.tiercheck.remote import Remotes
from convoy_agents.tiercheck.stores import calls
from convoy_agents.tiercheck.stores.blobs import Listing
from convoy_agents.tiercheck.stores.calls import Calls, ResponseTimer, TimedBlobs
from convoy_agents.tiercheck.stores.errors import StoreError
from convoy_agents.tiercheck.stores.volume import Volume
from convoy_agents.wire import hub_pb2

PLAN = Assignment("pod-1", "uid-1", "team/job", 1, 0, 0, 1, 1, "", 0, 0, "w", 0, (), ())


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(calls, "_POLL_SECONDS", 0.05)


@pytest.fixture
def over() -> Iterator[threading.Event]:
    """Yield an event that ends all hanging operations. It is set at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


def hangs(timer: ResponseTimer, over: threading.Event) -> Callable[[], None]:
    def do() -> None:
        with timer.operation():
            over.wait(60)

    return do


def test_the_timer_reports_the_longest_silent_operation() -> None:
    now = [0.0]
    timer = ResponseTimer(lambda: now[0])
    assert timer.silent_seconds == 0
    with timer.operation():
        now[0] = 3
        with timer.operation() as alive:
            now[0] = 5
            assert timer.silent_seconds == 5
            alive()
        assert timer.silent_seconds == 5
    assert timer.silent_seconds == 0
    with pytest.raises(ZeroDivisionError), timer.operation():
        now[0] = 1 / 0
    assert timer.silent_seconds == 0


def test_every_store_operation_is_timed() -> None:
    recorded: list[tuple[str, bool]] = []
    timer = ResponseTimer(lambda: 1.0)

    class RecordingBlobs:
        where = "here"

        def __getattr__(self, name: str) -> Any:
            def use(*args: Any) -> Any:
                recorded.append((name, bool(timer._last_response)))
                for one in args:
                    if callable(one):
                        one()

            return use

    names: list[int] = []
    blobs = TimedBlobs(RecordingBlobs(), timer)  # type: ignore[arg-type]
    assert blobs.where == "here"
    blobs.put("k", b"")
    blobs.create("k", b"")
    blobs.get("k")
    blobs.names("f", lambda: names.append(1))
    blobs.folders("f", lambda: names.append(2))
    blobs.touch("k")
    blobs.remove("k")
    blobs.tidy("f", 0.0, lambda: names.append(3))
    blobs.refuses_damage("k")
    assert recorded == [
        (name, True)
        for name in (
            "put",
            "create",
            "get",
            "names",
            "folders",
            "touch",
            "remove",
            "tidy",
            "refuses_damage",
        )
    ]
    assert names == [1, 2, 3] and not timer._last_response


def test_a_volume_reports_liveness_during_a_listing(tmp_path: Path) -> None:
    volume, signals = Volume(tmp_path), []
    for number in range(3):
        volume.put(f"a/{number}", b"")
    assert len(volume.names("a", lambda: signals.append(1)).written) == len(signals) == 3


async def test_results_and_errors_of_a_call_are_passed_on() -> None:
    some = Calls("here")
    assert await some.run(ResponseTimer(), lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await some.run(ResponseTimer(), lambda: 1 / 0)
    some.close()


async def test_a_call_with_many_short_operations_does_not_time_out() -> None:
    some, timer = Calls("here"), ResponseTimer()
    waits = threading.Event()

    def do() -> int:
        for _ in range(8):
            with timer.operation() as alive:
                waits.wait(0.1)
                alive()
                waits.wait(0.1)
        waits.wait(1.5)
        return 7

    assert await some.run(timer, do) == 7
    some.close()


async def test_calls_to_a_hung_store_and_calls_waiting_for_a_thread_time_out(
    over: threading.Event,
) -> None:
    some = Calls("here", threads=2)
    waiting = [
        asyncio.create_task(some.run(one, hangs(one, over))) for one in (ResponseTimer(), ResponseTimer())
    ]
    for task in waiting:
        with pytest.raises(StoreError, match="here: it does not answer within") as hung:
            await task
        assert hung.value.retriable
    done: list[int] = []
    with pytest.raises(StoreError, match="does not answer"):
        await some.run(ResponseTimer(), lambda: done.append(1))
    assert not done
    # The store recovers. Its threads must be usable again, and the calls that got an error while they waited
    # must not start.
    over.set()
    for _ in range(1000):
        if not some._running:
            break
        await asyncio.sleep(0.01)
    else:
        raise AssertionError("threads still hang")
    await some.run(ResponseTimer(), lambda: done.append(2))
    assert done == [2]
    some.close()


async def test_a_cancelled_call_occupies_its_thread_until_it_ends(over: threading.Event) -> None:
    some, timer, begun = Calls("here", threads=1), ResponseTimer(), threading.Event()

    def do() -> None:
        begun.set()
        hangs(timer, over)()

    task = asyncio.create_task(some.run(timer, do))
    assert await asyncio.to_thread(begun.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(StoreError, match="does not answer"):
        await some.run(ResponseTimer(), lambda: None)
    some.close()


async def test_calls_waiting_for_a_replaced_store_fail_with_a_retriable_error(over: threading.Event) -> None:
    some, timer, begun = Calls("here", threads=1), ResponseTimer(), threading.Event()

    def do() -> int:
        begun.set()
        over.wait(60)
        return 7

    runs = asyncio.create_task(some.run(timer, do))
    assert await asyncio.to_thread(begun.wait, 20)
    waits = asyncio.create_task(some.run(ResponseTimer(), lambda: 8))
    await asyncio.sleep(0)
    some.close()
    for refused in (waits, some.run(ResponseTimer(), lambda: 9)):
        with pytest.raises(StoreError, match="settings were changed") as failed:
            await refused
        assert failed.value.retriable
    over.set()
    assert await runs == 7, "what is under way goes on"


class Remote:
    """A Remotes with two stores on volumes. Listings of the store `hung` hang."""

    def __init__(self, root: Path, over: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
        class Hanging(Volume):
            def names(self, folder: str, *more: Any, **also: Any) -> Listing:
                if "hung" in self.where:
                    over.wait(60)
                return super().names(folder, *more, **also)

        monkeypatch.setattr(remote, "Volume", Hanging)
        monkeypatch.setattr(remote, "is_target", Path.is_dir)
        self.remotes = Remotes(lambda report: None, root, Encoders(1))
        for claim in ("hung", "fine", "other"):
            (root / claim).mkdir()
        for name in ("hung", "fine"):
            self.update_store(name, name)

    def update_store(self, name: str, claim: str) -> None:
        volume = hub_pb2.ClaimedVolume(claim=claim)
        self.remotes.apply(hub_pb2.Store(name=name, version=claim, volume=volume, conditional=True))

    @staticmethod
    def plan(store: str) -> Assignment:
        memory = MemoryTiers(copies=0, limit=0, store=StoreUse(store, 0, 2, 0))
        return replace(PLAN, memory=memory)


async def test_a_hung_store_does_not_delay_other_stores(
    tmp_path: Path, over: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Remote(tmp_path, over, monkeypatch)
    hung = [asyncio.create_task(here.remotes.inventory(here.plan("hung"))) for _ in range(2 * calls.THREADS)]
    assert not (await here.remotes.inventory(here.plan("fine"))).records
    for task in hung:
        with pytest.raises(StoreError, match="claim hung: it does not answer") as failed:
            await task
        assert failed.value.retriable
    # The hub sends a store of the same name with another claim. The agent must treat it as a new store.
    here.update_store("hung", "other")
    assert not (await here.remotes.inventory(here.plan("hung"))).records
    await here.remotes.close()
