"""Gangs that compete for scarce room: with each backend every job ends, whatever fails, and jobs that gave up
pods get them back.

`gang_lives` checks the invariants of placement at every change. `make fuzz` plays a hundred times the lives.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.cases import cases
from tests.unit.controllers.gang_lives import GangLife, job

from convoy_controllers.resources import NATIVE_POD_GROUPS, Resource
from convoy_crds.layout import present
from convoy_crds.placement import GangBackend
from convoy_crds.trainingjob_status import Phase

NATIVE = NATIVE_POD_GROUPS[:1]
BACKENDS: dict[GangBackend, tuple[Resource, ...]] = {GangBackend.NONE: (), GangBackend.NATIVE: NATIVE}
REGROW_SECONDS = 300.0
"""Maximum virtual seconds in which a job gets back the pods that it gave up, if there is room."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", range(cases(1)))
def test_random_gangs_on_scarce_room_all_end(seed: int, backend: GangBackend) -> None:
    life = GangLife(seed, BACKENDS[backend])
    rng = life.rng
    for number in range(rng.choice([1, 2])):
        pack = rng.choice(["Preferred", "Preferred", "None"])
        life.submit(job(f"low{number}", rng.choice([5, 6]), rng.choice([2, 3]), pack=pack), 120)
    life.run(rng.choice([8.0, 25.0]))
    for number in range(2):
        size, pack = rng.choice([2, 3, 4]), rng.choice(["Required", "Required", "Preferred", "None"])
        least = rng.choice([None, None, max(1, size - 1)])
        life.submit(job(f"high{number}", size, least, priority="high", pack=pack), rng.choice([30, 80]))
        life.run(rng.choice([0.5, 3.0, 15.0]))
    used = {made.status.placement.gang for made in life.jobs() if made.status.placement}
    for _ in range(8):
        life.random_event()
        life.run(rng.choice([0.05, 1.0, 5.0, 12.0, 30.0]))
    life.end()
    assert used == {backend}
    assert life.formations


@pytest.mark.parametrize("backend", BACKENDS)
def test_many_gangs_at_once_do_not_block_each_other(backend: GangBackend) -> None:
    life = GangLife(7, BACKENDS[backend], capacity=1)
    for number in range(4):
        life.submit(job(f"j{number}", 4, pack="None"), 20)
    life.end()
    partial = {pod.name for pod in life.partial}
    # Without gang scheduling, the pods of a gang that lacks room hold their nodes until the deadline.
    assert bool(partial) == (backend is GangBackend.NONE)


def crowded(backend: GangBackend = GangBackend.NONE, pack: str = "Required") -> GangLife:
    """Return a cluster that an elastic job fills, with a gang of higher priority that has claimed pods."""
    life = GangLife(1, BACKENDS[backend], capacity=1)
    life.submit(job("low", 6, 2), 2000)
    life.run_until(lambda: ranks(life, "low") == 6, 60, "the elastic job runs on all nodes")
    life.run(15.0)
    life.submit(job("high", 2, priority="high", pack=pack), 20)
    life.run_until(lambda: life.claims == 1, 10, "the gang claims pods", step=0.05)
    return life


def ranks(life: GangLife, name: str) -> int:
    """Return the number of ranks of a running job; 0 if it does not run or exist."""
    made = next((one for one in life.jobs() if one.metadata.name == name), None)
    return len(present(made)) if made is not None and made.status.phase is Phase.RUNNING else 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_elastic_job_shrinks_for_a_gang_and_grows_after_its_end(backend: GangBackend) -> None:
    life = crowded(backend)
    life.run_until(lambda: ranks(life, "high") == 2, 60, "the gang runs")
    life.run_until(lambda: ranks(life, "low") == 4, 60, "the elastic job goes on with the other pods")
    assert life.claimants() == []
    restarts = life.cluster.job("low").status.restarts
    assert (restarts.total, restarts.counted) == (1, 0)
    life.run_until(lambda: life.cluster.job("high").status.phase is Phase.SUCCEEDED, 120, "the gang ends")
    life.run_until(lambda: ranks(life, "low") == 6, REGROW_SECONDS, "the elastic job has all pods again")


def delete(life: GangLife) -> None:
    life.cluster.api.delete_job("high")


def suspend(life: GangLife) -> None:
    life.faults.edit("high", suspend=True)


def fail(life: GangLife) -> None:
    life.faults.edit("high", activeDeadlineSeconds=1)


def spoil(life: GangLife) -> None:
    life.faults.edit("high", engine={"name": "unknown"})


@pytest.mark.parametrize("end", [delete, suspend, fail, spoil])
def test_claims_end_with_their_job(end: Callable[[GangLife], None]) -> None:
    life = crowded()
    end(life)
    life.run_until(lambda: life.claimants() == [], 10, "no claim is left")
    life.run_until(lambda: ranks(life, "low") == 6, REGROW_SECONDS, "the elastic job has all pods again")
    assert ranks(life, "high") == 0


def test_a_job_whose_ranks_have_another_order_than_its_pods_runs_to_its_end() -> None:
    life = GangLife(2, capacity=1)
    nodes = sorted(life.cluster.machines.by_name)
    for node in nodes:
        life.faults.cordon_node(node)
    life.submit(job("j", 4, pack="None"), 40)
    # Each node is free alone for a moment, so that the pods 0 and 2 are in one rack, and 1 and 3 in another.
    for number in (0, 4, 1, 5):
        life.run(1.0)
        life.faults.uncordon_node(nodes[number])
    life.run_until(lambda: ranks(life, "j") == 4, 60, "the job runs")
    assert life.cluster.job("j").status.roles[0].order == [0, 2, 1, 3]
    life.end()
    assert life.formations == 1
    assert life.cluster.job("j").status.restarts.total == 0
