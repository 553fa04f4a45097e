"""Tests of the Strict jobs that the agent finds in its pods' state."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.agents.test_rules import plan

from convoy_agents.pods.assignment import Assignment
from convoy_agents.pods.messages import RankUpdate
from convoy_agents.pods.state import PodState, RankState, Shutdown
from convoy_agents.strict_jobs import strict_jobs

STRICT = replace(plan(1), strict=True)


def pod(assignment: Assignment | None, uid: str = "pod", **more: object) -> PodState:
    return replace(PodState(uid, connected=True, assignment=assignment), **more)  # type: ignore[arg-type]


def ended(*ranks: int) -> dict[int, RankState]:
    return {rank: RankState(RankUpdate(1, rank, "EXITED")) for rank in ranks}


@pytest.mark.parametrize(
    ("state", "found"),
    [
        (pod(STRICT), True),
        (pod(plan(1)), False),
        (pod(None), False),
        (pod(STRICT, shutdown=Shutdown(75, "cut off", immediate=True)), False),
        (pod(STRICT, shutdown=Shutdown(0, "done")), True),
        (pod(STRICT, ranks=ended(0, 1)), False),
        (pod(STRICT, ranks=ended(0)), True),
        (pod(STRICT, ranks={**ended(0), 1: RankState(RankUpdate(1, 1, "RUNNING"))}), True),
    ],
    ids=[
        "strict", "not strict", "unassigned", "stopped already", "leaving with time to save", "over",
        "half known", "half over",
    ],
)  # fmt: skip
def test_strict_jobs_contain_only_pods_that_must_be_stopped(state: PodState, found: bool) -> None:
    assert [one.pods for one in strict_jobs([state], "one")] == ([("pod",)] if found else [])


def test_a_strict_job_has_the_other_nodes_of_its_newest_plan() -> None:
    old = replace(STRICT, members=(STRICT.members[0], replace(STRICT.members[1], node="gone")))
    new = replace(plan(2), strict=True)
    [one] = strict_jobs([pod(old, "leaving"), pod(new)], "one")
    assert (one.incarnation, list(one.peers), one.pods) == (2, ["two"], ("leaving", "pod"))
