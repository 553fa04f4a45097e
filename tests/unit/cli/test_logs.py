"""`convoy logs`: which lines, and why there are none."""

from __future__ import annotations

import pytest

from convoy.cli.logs import chosen, no_pods, refusal
from convoy_crds.trainingjob import TrainingJob

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
def test_lines_are_told_apart_by_rank_and_incarnation(
    rank: int | None, incarnation: int | None, shown: list[str]
) -> None:
    assert list(chosen(LINES, rank, incarnation)) == shown


@pytest.mark.parametrize(
    ("formed", "rank", "incarnation", "words"),
    [
        (3, None, None, None),
        (3, 1, 3, None),
        (3, 2, None, "has no rank 2: its ranks are 0 to 1"),
        (3, None, 7, "has had no incarnation 7: it had incarnations 1 to 3"),
        (1, None, 0, "has had no incarnation 0: it had incarnation 1 alone"),
        (0, None, 1, "has had no incarnation 1: it had none yet"),
    ],
)
def test_what_never_was_is_refused(
    formed: int, rank: int | None, incarnation: int | None, words: str | None
) -> None:
    found = refusal(job(formed), rank, incarnation)
    assert found == (words and f"job {words}")


def test_why_there_are_no_logs() -> None:
    assert "is suspended: its logs went with its pods" in no_pods(job(1, suspend=True))
    assert "`convoy why job`" in no_pods(job(1))
