"""What simulated ranks go on from: what is left in the memory of machines, else what is in the store."""

from __future__ import annotations

from typing import Any

import pytest

from convoy_controllers.simulate.cluster import Cluster
from convoy_controllers.simulate.cluster_events import CheckpointCommitted, ClusterEvent, FirstStep
from convoy_controllers.simulate.faults import Faults
from convoy_controllers.simulate.machines import Machine
from convoy_controllers.simulate.program import Program
from convoy_controllers.simulate.saves import SavedCheckpoints, SavedGeneration
from convoy_controllers.testing.builders import make_engine, make_job

PEER = {"local": {}, "peer": {}}
STORE = {"local": {}, "remote": {"store": "s3", "every": "30s"}}


class Course:
    """One job of two workers on four nodes, which saves every ten seconds."""

    def __init__(self, tiers: Any) -> None:
        self.cluster = Cluster([Machine(f"node-{number}", 1) for number in range(4)], engines=[make_engine()])
        self.faults = Faults(self.cluster)
        self.commits: list[int] = []
        self.begins: list[int] = []
        """By incarnation that steps, the steps behind it when it began."""
        self.cluster.listeners.append(self._on_event)
        self.cluster.operator.lead()
        self.cluster.submit(make_job(checkpoint={"interval": "10s", "tiers": tiers}), Program())
        self.cluster.run(60.0)

    def _on_event(self, event: ClusterEvent) -> None:
        match event:
            case CheckpointCommitted(_, step):
                self.commits.append(step)
            case FirstStep(gang):
                self.begins.append(gang.at(self.cluster.kernel.now)[0] - 1)
            case _:
                pass

    def node(self, worker: int) -> str:
        node = self.cluster.api.pods[f"job-worker-{worker}"].node
        assert node is not None
        return node

    def marks(self) -> dict[str, int]:
        """By tier, the newest step that every agent of the job tells."""
        told = [
            {tier: mark.step for tier, mark in view.committed.items()}
            for view in self.cluster.workers.slots.values()
        ]
        assert told[0] == told[1]
        return told[0]


@pytest.mark.parametrize(
    ("tiers", "lost", "found"),
    [
        ({"local": {}}, (), -1),
        ({"local": {}}, (1,), None),
        (PEER, (1,), -1),
        (PEER, (0, 1), None),
        (STORE, (1,), 3),
        ({**PEER, **STORE}, (1,), -1),
        ({**PEER, **STORE}, (0, 1), 3),
    ],
)
def test_what_is_left_when_nodes_lose_their_power(
    tiers: Any, lost: tuple[int, ...], found: int | None
) -> None:
    """`found`: which of the commits; None for none. Without a node that is lost, a rank is killed."""
    course = Course(tiers)
    assert course.begins == [0] and len(course.commits) == 5
    for node in [course.node(worker) for worker in lost]:
        course.faults.kill_node(node)
    if not lost:
        course.faults.kill_rank("job", 1)
    before = list(course.commits)
    course.cluster.run(60.0)
    assert course.begins[1] == (before[found] if found is not None else 0)


def test_memory_that_cannot_be_reached_is_no_help() -> None:
    course = Course(PEER)
    ours = [course.node(0), course.node(1)]
    for node in ours:
        course.faults.cut_node(node)
    course.cluster.run(120.0)
    assert course.begins[-1] == 0 and not set(ours) & {course.node(0), course.node(1)}


def test_agents_tell_each_tier() -> None:
    course = Course({**PEER, **STORE})
    newest, stored = course.commits[-1], course.commits[3]
    assert course.marks() == {"local": newest, "peer": newest, "remote": stored}
    assert Course({"local": {}}).marks().keys() == {"local"}


def test_what_a_run_has_not_found_when_it_went_on_is_no_state_of_it_any_more() -> None:
    saves = SavedCheckpoints()
    saves._memory = SavedGeneration(5, [{"one"}, {"two"}])
    assert saves.newest(lambda node: node == "one") == 0
    assert saves.restore(lambda node: True) == 5
    assert saves.restore(lambda node: node == "one") == 0
    assert saves.newest(lambda node: True) == 0
