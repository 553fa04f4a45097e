"""Tests of the restores of simulated ranks. They read the memory of machines if it has all shards, and the
store otherwise.
"""

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


class SavingJob:
    """A job of two workers on four nodes. It saves a checkpoint every ten seconds."""

    def __init__(self, tiers: Any) -> None:
        self.cluster = Cluster([Machine(f"node-{number}", 1) for number in range(4)], engines=[make_engine()])
        self.faults = Faults(self.cluster)
        self.commits: list[int] = []
        self.starts: list[int] = []
        """Step that each incarnation restored, in the order of the incarnations; 0 if it restored none."""
        self.cluster.listeners.append(self._on_event)
        self.cluster.operator.lead()
        self.cluster.submit(make_job(checkpoint={"interval": "10s", "tiers": tiers}), Program())
        self.cluster.run(60.0)

    def _on_event(self, event: ClusterEvent) -> None:
        match event:
            case CheckpointCommitted(_, step):
                self.commits.append(step)
            case FirstStep(gang):
                self.starts.append(gang.at(self.cluster.kernel.now)[0] - 1)
            case _:
                pass

    def node(self, worker: int) -> str:
        node = self.cluster.api.pods[f"job-worker-{worker}"].node
        assert node is not None
        return node

    def committed_steps(self) -> dict[str, int]:
        """Return the newest committed step of each tier. Assert that all agents of the job report the same
        steps.
        """
        reports = [
            {tier: mark.step for tier, mark in view.committed.items()}
            for view in self.cluster.workers.slots.values()
        ]
        assert reports[0] == reports[1]
        return reports[0]


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
def test_restart_restores_the_newest_remaining_checkpoint(
    tiers: Any, lost: tuple[int, ...], found: int | None
) -> None:
    """Cut the power of the nodes of the workers in `lost`. If `lost` is empty, kill a rank instead.

    The job must then restore commit number `found`, or start at step 0 if `found` is None.
    """
    job = SavingJob(tiers)
    assert job.starts == [0] and len(job.commits) == 5
    for node in [job.node(worker) for worker in lost]:
        job.faults.kill_node(node)
    if not lost:
        job.faults.kill_rank("job", 1)
    before = list(job.commits)
    job.cluster.run(60.0)
    assert job.starts[1] == (before[found] if found is not None else 0)


def test_unreachable_memory_is_not_restored() -> None:
    job = SavingJob(PEER)
    ours = [job.node(0), job.node(1)]
    for node in ours:
        job.faults.cut_node(node)
    job.cluster.run(120.0)
    assert job.starts[-1] == 0 and not set(ours) & {job.node(0), job.node(1)}


def test_agents_report_each_tier() -> None:
    job = SavingJob({**PEER, **STORE})
    newest, stored = job.commits[-1], job.commits[3]
    assert job.committed_steps() == {"local": newest, "peer": newest, "remote": stored}
    assert SavingJob({"local": {}}).committed_steps().keys() == {"local"}


def test_restore_drops_a_newer_unreachable_generation() -> None:
    saves = SavedCheckpoints()
    saves._memory = SavedGeneration(5, [{"one"}, {"two"}])
    assert saves.newest(lambda node: node == "one") == 0
    assert saves.restore(lambda node: True) == 5
    assert saves.restore(lambda node: node == "one") == 0
    assert saves.newest(lambda node: True) == 0
