"""Tests of the selection of the ranks' output, and of the reasons for missing output."""

from __future__ import annotations

import pytest

from convoy.client.output import expects_pods, no_pods_reason, refusal, select_lines, slots_of_rank
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import Phase

LINES = ["convoy: starts", "[1/0] a", "[1/1] b", "[2/0] c", "[x/0] d"]


def job(incarnation: int, suspend: bool = False) -> TrainingJob:
    return TrainingJob.model_validate(
        {
            "metadata": {"name": "job"},
            "spec": {"roles": [{"name": "worker", "replicas": 2}], "suspend": suspend},
            "status": {"incarnation": incarnation},
        }
    )


@pytest.mark.parametrize(
    ("rank", "incarnation", "shown"),
    [
        (None, None, LINES),
        (0, None, ["[1/0] a", "[2/0] c"]),
        (None, 1, ["[1/0] a", "[1/1] b"]),
        (0, 2, ["[2/0] c"]),
        (7, None, []),
    ],
)
def test_lines_are_distinguished_by_rank_and_incarnation(
    rank: int | None, incarnation: int | None, shown: list[str]
) -> None:
    assert list(select_lines(LINES, rank, incarnation)) == shown


@pytest.mark.parametrize(
    ("formed", "rank", "incarnation", "words"),
    [
        (3, None, None, None),
        (3, 1, 3, None),
        (3, 2, None, "has no rank 2: its ranks are 0 to 1"),
        (3, None, 7, "has had no incarnation 7: it had incarnations 1 to 3"),
        (1, None, 0, "has had no incarnation 0: it had only incarnation 1"),
        (0, None, 1, "has had no incarnation 1: it had none yet"),
    ],
)
def test_unknown_ranks_and_incarnations_are_refused(
    formed: int, rank: int | None, incarnation: int | None, words: str | None
) -> None:
    found = refusal(job(formed), rank, incarnation)
    assert found == (words and f"job {words}")


def test_the_reason_for_missing_logs_is_explained() -> None:
    assert "is suspended: its pods and their logs are deleted" in no_pods_reason(job(1, suspend=True))
    assert "`convoy why job`" in no_pods_reason(job(1))


def shrunk(fewest: int | None = 1) -> TrainingJob:
    """Return a job in incarnation 2 with the roles a and b. Role a has three pods with 2 ranks each, may
    run with `fewest` pods, and lacks pod a-1.
    """
    return TrainingJob.model_validate(
        {
            "metadata": {"name": "job"},
            "spec": {
                "roles": [
                    {"name": "a", "replicas": 3, "minReplicas": fewest, "processesPerReplica": 2},
                    {"name": "b", "replicas": 1},
                ]
            },
            "status": {"incarnation": 2, "roles": [{"name": "a", "desired": 3, "absent": [1]}]},
        }
    )


def with_independent() -> TrainingJob:
    roles = [{"name": "a", "replicas": 3, "membership": "Independent"}, {"name": "b", "replicas": 2}]
    body = {"metadata": {"name": "job"}, "spec": {"roles": roles}, "status": {"incarnation": 2}}
    return TrainingJob.model_validate(body)


@pytest.mark.parametrize(
    ("about", "rank", "incarnation", "pods"),
    [
        (job(1), None, None, ["worker-0", "worker-1"]),
        (job(1), 1, None, ["worker-1"]),
        (job(2), 1, 1, ["worker-1"]),
        (shrunk(), None, None, ["a-0", "a-1", "a-2", "b-0"]),
        (shrunk(), 1, None, ["a-0"]),
        (shrunk(), 2, None, ["a-2"]),
        (shrunk(), 4, 2, ["b-0"]),
        (shrunk(), 5, 2, []),
        # In an earlier incarnation up to two pods of role a may have been absent, so several pods may have
        # had the rank.
        (shrunk(), 0, 1, ["a-0", "a-1", "a-2"]),
        (shrunk(), 2, 1, ["a-1", "a-2", "b-0"]),
        (shrunk(), 4, 1, ["a-2", "b-0"]),
        (shrunk(), 6, 1, ["b-0"]),
        (shrunk(2), 3, 1, ["a-1", "a-2"]),
        (shrunk(None), 2, 1, ["a-1"]),
        # An Independent role has no ranks in the group.
        (with_independent(), 0, 1, ["b-0"]),
        (with_independent(), 1, None, ["b-1"]),
    ],
)
def test_only_pods_that_may_have_the_rank_are_read(
    about: TrainingJob, rank: int | None, incarnation: int | None, pods: list[str]
) -> None:
    assert [slot.pod for slot in slots_of_rank(about, rank, incarnation)] == [f"job-{pod}" for pod in pods]


@pytest.mark.parametrize(
    ("rank", "incarnation", "words"),
    [
        (4, None, None),
        (5, None, "has no rank 5: its ranks are 0 to 4, because it runs without 1 of its 4 pods"),
        (5, 2, "has no rank 5: its ranks are 0 to 4, because it runs without 1 of its 4 pods"),
        (6, 1, None),
        (7, 1, "has no rank 7: its ranks are 0 to 6"),
    ],
)
def test_a_rank_without_a_present_pod_is_refused(
    rank: int, incarnation: int | None, words: str | None
) -> None:
    assert refusal(shrunk(), rank, incarnation) == (words and f"job {words}")


@pytest.mark.parametrize(
    ("phase", "suspend", "come"),
    [("", False, True), ("Restarting", False, True), ("Pending", True, False), ("Failed", False, False)],
)
def test_pods_are_expected_unless_a_job_is_suspended_or_ended(phase: str, suspend: bool, come: bool) -> None:
    about = job(1, suspend)
    about.status.phase = Phase(phase) if phase else None
    assert expects_pods(about) is come
