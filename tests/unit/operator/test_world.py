"""Which keys a change wakes, and how soon."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_operator import views
from convoy_operator.keys import Key
from convoy_operator.world import Triggers, World

JOB = Key("TrainingJob", "ns", "j")


class Queue:
    def __init__(self) -> None:
        self.added: list[tuple[Key, float, bool]] = []

    def add(self, key: Key, delay: float = 0.0, *, high: bool = True) -> None:
        self.added.append((key, delay, high))

    def take(self) -> list[tuple[Key, float, bool]]:
        taken, self.added = self.added, []
        return taken


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def queue(world: World) -> Queue:
    queue = Queue()
    Triggers(world, queue, 0.15)  # type: ignore[arg-type]
    return queue


def job(version: int, generation: int = 1, phase: str = "", engine: str = "") -> views.Parent:
    raw: dict[str, Any] = {
        "metadata": {
            "name": "j",
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": str(version),
            "generation": generation,
        },
        "spec": {"engine": {"name": engine}} if engine else {},
    }
    return views.parent(raw | ({"status": {"phase": phase}} if phase else {}))


def pod(version: int, phase: str = "Pending", **status: Any) -> views.Pod:
    return views.pod(
        {
            "metadata": {
                "name": "j-w-0",
                "namespace": "ns",
                "uid": "p",
                "resourceVersion": str(version),
                "labels": {"convoy.dev/job": "j"},
            },
            "status": {"phase": phase, **status},
        }
    )


def test_a_spec_change_is_looked_at_at_once_a_status_change_soon(world: World, queue: Queue) -> None:
    world.jobs.upsert(job(1))
    assert queue.take() == [(JOB, 0.0, True)]
    world.jobs.upsert(job(2, phase="Running"))
    assert queue.take() == [(JOB, 0.15, False)]
    world.jobs.upsert(job(3, generation=2))
    assert queue.take() == [(JOB, 0.0, True)]


def test_our_own_status_write_wakes_nobody(world: World, queue: Queue) -> None:
    world.jobs.upsert(job(1))
    queue.take()
    world.jobs.upsert(job(2, phase="Running"), own=True)
    assert queue.take() == []


def test_pods_wake_their_job_soon_and_at_once_when_they_end(world: World, queue: Queue) -> None:
    world.pods.upsert(pod(1))
    assert queue.take() == [(JOB, 0.15, True)]
    world.pods.upsert(pod(2))
    assert queue.take() == [], "nothing that a plan would see has changed"
    world.pods.upsert(pod(3, "Running", podIP="10.0.0.1"))
    assert queue.take() == [(JOB, 0.15, True)]
    world.pods.upsert(pod(4, "Failed"))
    assert queue.take() == [(JOB, 0.0, True)]
    world.pods.remove(pod(5, "Failed"))
    assert queue.take() == [(JOB, 0.0, True)]


def test_an_engine_wakes_itself_and_the_jobs_that_name_it(world: World, queue: Queue) -> None:
    world.jobs.upsert(job(1, engine="odb"))
    queue.take()
    world.engines.upsert(views.parent({"metadata": {"name": "odb", "uid": "e", "resourceVersion": "2"}}))
    assert queue.take() == [(Key("Engine", "", "odb"), 0.0, True), (JOB, 0.15, True)]
    world.engines.upsert(views.parent({"metadata": {"name": "else", "uid": "f", "resourceVersion": "3"}}))
    assert queue.take() == [(Key("Engine", "", "else"), 0.0, True)]


def test_the_first_agent_node_wakes_all_jobs_that_are_not_over(world: World, queue: Queue) -> None:
    world.jobs.upsert(job(1))
    queue.take()

    def node(version: int, ready: str) -> views.Node:
        labels = {"convoy.dev/agent-ready": ready}
        return views.node(
            {"metadata": {"name": "n", "uid": "n", "resourceVersion": str(version), "labels": labels}}
        )

    world.nodes.upsert(node(1, "false"))
    assert queue.take() == []
    world.nodes.upsert(node(2, "true"))
    assert queue.take() == [(JOB, 0.15, True)]
    assert world.agent_nodes == 1
    world.jobs.upsert(job(3, phase="Succeeded"))
    queue.take()
    world.nodes.upsert(node(4, "false"))
    assert queue.take() == []


def test_jobs_are_counted_by_phase(world: World) -> None:
    world.jobs.upsert(job(1))
    assert (world.active, world.phases["Pending"]) == (1, 1)
    world.jobs.upsert(job(2, phase="Running"), own=True)
    assert (world.active, world.phases["Pending"], world.phases["Running"]) == (1, 0, 1)
    world.jobs.upsert(job(3, phase="Failed"))
    assert world.active == 0
    world.jobs.remove(job(4))
    assert world.phases.total() == 0
