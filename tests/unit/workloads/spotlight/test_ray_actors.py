"""The driver's side of the actors, without Ray: calls that wait, failed workers, other images, bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from convoy_workloads.engines.spotlight.live import exchange, ray_actors
from convoy_workloads.engines.spotlight.live.connection import recipe
from convoy_workloads.engines.spotlight.live.exchange import CONCURRENCY, Exchange
from convoy_workloads.engines.spotlight.live.image import OtherImage, own_image
from convoy_workloads.engines.spotlight.live.mailbox import MAX_CALLS, Call
from convoy_workloads.engines.spotlight.live.messages import Pull
from convoy_workloads.engines.spotlight.live.ray_actors import MAX_WORKERS, RayCluster
from convoy_workloads.engines.spotlight.live.slot_starts import (
    JITTER,
    LONGEST_PAUSE_SECONDS,
    PAUSE_SECONDS,
    STEADY_SECONDS,
    SlotStarts,
)
from convoy_workloads.engines.spotlight.live.spot_actor import SpotActor
from convoy_workloads.engines.spotlight.params import Params
from convoy_workloads.ray_cluster.head import WorkerNode
from convoy_workloads.ray_cluster.outcomes import Late, Lost, Outcome, Raised, Value

# The mailbox


def test_however_many_workers_wait_the_driver_collects_and_answers_them() -> None:
    async def main() -> None:
        mailbox = Exchange()
        calls = [asyncio.create_task(mailbox.call(f"spot/{one}", Pull(1), 60.0)) for one in range(MAX_CALLS)]
        await asyncio.sleep(0)
        assert await mailbox.call("one too many", Pull(1), 60.0) == ()
        found = await mailbox.collect(60.0)
        assert len(found) == MAX_CALLS and await mailbox.collect(0.0) == []
        await mailbox.reply({one.number: one.worker for one in found})
        assert await asyncio.gather(*calls) == [(f"spot/{one}",) for one in range(MAX_CALLS)]

    asyncio.run(main())
    assert CONCURRENCY > MAX_CALLS >= 2 * MAX_WORKERS


def test_a_call_ends_at_its_deadline_and_a_late_answer_is_dropped() -> None:
    async def main() -> None:
        mailbox = Exchange()
        waiting = asyncio.create_task(mailbox.collect(60.0))
        await asyncio.sleep(0)
        assert await mailbox.call("spot", Pull(1), 0.0) == ()
        for one in await waiting:
            await mailbox.reply({one.number: "late"})
        assert await mailbox.collect(0.0) == []

    asyncio.run(main())


def test_calls_that_the_mailbox_returns_too_late_are_in_the_next_collection(actors: Actors) -> None:
    calls, ends = iter(["first", "second"]), iter([Late(), Value([Call(1, "spot", Pull(1))]), Value([])])
    asked: list[str] = []

    def outcome(call: str, seconds: float) -> Outcome:
        asked.append(call)
        return next(ends)

    mailbox = SimpleNamespace(collect=SimpleNamespace(remote=lambda seconds: next(calls)))
    actors.cluster._exchange = mailbox
    with patch.multiple(ray_actors, outcome=outcome):
        found = [[one.number for one in actors.cluster.collect(0.5)] for _ in range(3)]
    assert found == [[], [1], []] and asked == ["first", "first", "second"]


# Slots


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_slot_whose_actors_fail_is_tried_again_after_longer_and_longer_pauses() -> None:
    clock = Clock()
    starts, pauses = SlotStarts(clock), []
    for _ in range(12):
        assert starts.may_start("slot")
        starts.started("slot")
        pauses.append(starts.ended("slot", failed=True))
        assert not starts.may_start("slot")
        clock.now += pauses[-1]
    assert PAUSE_SECONDS <= pauses[0] <= PAUSE_SECONDS * (1 + JITTER) < pauses[1]
    assert LONGEST_PAUSE_SECONDS <= pauses[-1] <= LONGEST_PAUSE_SECONDS * (1 + JITTER)
    starts.started("slot")
    clock.now += STEADY_SECONDS
    assert starts.ended("slot", failed=True) <= PAUSE_SECONDS * (1 + JITTER)


def test_slots_of_lost_nodes_are_forgotten() -> None:
    starts = SlotStarts(Clock())
    for slot in ("gone", "here"):
        starts.ended(slot)
    starts.keep({"here"})
    assert starts.may_start("gone") and not starts.may_start("here")


# Workers


class Actors:
    """Actors of Ray. `ends`: outcomes of their `run`, by name."""

    def __init__(self) -> None:
        self.nodes = [WorkerNode("a" * 12, "10.0.0.2", 2, 990.0)]
        self.drained: dict[str, float] = {}
        self.ends: dict[str, Outcome] = {}
        self.clock = Clock()
        head: Any = SimpleNamespace(worker_nodes=lambda: self.nodes, draining=lambda: self.drained)
        self.cluster = RayCluster(head, recipe(Params()), starts=SlotStarts(self.clock))

    def on_node(self, kind: Any, node: str, max_concurrency: int, slots: int) -> Any:
        def start(name: str, *_: Any) -> Any:
            return SimpleNamespace(run=SimpleNamespace(remote=lambda: name))

        return SimpleNamespace(remote=start)

    def finished(self, runs: list[str], seconds: float) -> list[str]:
        return [one for one in runs if one in self.ends]

    def outcome(self, run: str, seconds: float) -> Outcome:
        return self.ends.pop(run)


@pytest.fixture
def actors() -> Iterator[Actors]:
    made = Actors()
    parts = {"on_node": made.on_node, "finished": made.finished, "outcome": made.outcome}
    with patch.multiple(ray_actors, **parts):
        yield made


FIRST, SECOND = "10.0.0.2@990/0", "10.0.0.2@990/1"


def test_a_failed_worker_is_logged_counted_and_started_again(
    actors: Actors, capsys: pytest.CaptureFixture[str]
) -> None:
    first = actors.cluster.reconcile()
    assert first.slots == {FIRST: 990.0, SECOND: 990.0}
    one, other = first.started
    assert first.started == {one: FIRST, other: SECOND}
    actors.ends = {one: Raised("OtherImage: torch 2.0"), other: Value({})}
    after = actors.cluster.reconcile()
    assert (sorted(after.ended), after.failed) == (sorted([one, other]), 1)
    assert after.slots == first.slots and not after.started
    assert "OtherImage: torch 2.0" in (text := capsys.readouterr().err) and one in text and other not in text
    for _ in range(8):
        actors.clock.now += LONGEST_PAUSE_SECONDS * (1 + JITTER)
        assert one in actors.cluster.reconcile().started
        actors.ends = {one: Lost("killed for memory")}
        assert actors.cluster.reconcile().failed == 1


@pytest.mark.parametrize("drains", [False, True])
def test_a_worker_that_is_lost_with_its_node_has_not_failed(
    actors: Actors, drains: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = actors.cluster.reconcile().started
    actors.ends = {one: Lost("gone")}
    if drains:
        actors.drained = {actors.nodes[0].id: 1.0}
    else:
        actors.nodes = []
    after = actors.cluster.reconcile()
    assert after.failed == 0 and after.ended == ([one] if drains else [one, other])
    assert set(after.slots) == ({FIRST, SECOND} if drains else set())
    assert not after.started and not capsys.readouterr().err


def test_a_pod_that_joins_again_has_the_same_slots_but_other_workers(actors: Actors) -> None:
    first = actors.cluster.reconcile()
    actors.nodes = [replace(actors.nodes[0], id="b" * 12)]
    again = actors.cluster.reconcile()
    assert again.slots == first.slots and not again.started.keys() & first.started.keys()


def test_more_workers_than_the_mailbox_serves_are_not_started(
    actors: Actors, capsys: pytest.CaptureFixture[str]
) -> None:
    actors.nodes = [replace(actors.nodes[0], slots=MAX_WORKERS + 3)]
    found = actors.cluster.reconcile()
    assert len(found.started) == MAX_WORKERS and len(found.slots) == MAX_WORKERS + 3
    assert "3 slots stay empty" in capsys.readouterr().err
    actors.cluster.reconcile()
    assert not capsys.readouterr().err


def test_a_worker_with_other_code_or_libraries_refuses_to_start() -> None:
    own, plan = own_image(), recipe(Params())
    assert plan.image == own
    torch = replace(own, libraries={**own.libraries, "torch": "1.0"})
    for image, why in [(torch, "instead of 1.0"), (replace(own, code="x"), "other source files")]:
        with pytest.raises(OtherImage, match=why):
            SpotActor("spot", None, replace(plan, image=image))
    SpotActor("spot", None, plan)


def test_the_mailbox_starts_with_room_for_the_driver(actors: Actors) -> None:
    asked: list[Any] = []
    actors.cluster.head.own_node_id = lambda: "head"  # type: ignore[method-assign]
    started = SimpleNamespace(remote=lambda: None)
    with patch.object(ray_actors, "on_node", lambda *given: asked.append(given) or started):
        actors.cluster.start()
    assert asked == [(exchange.Exchange, "head", CONCURRENCY)]
