"""What the command line shows of a job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from convoy.cli.logs import chosen
from convoy.cli.show import age, explanation, row
from convoy_crds.trainingjob import TrainingJob

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def job(**status: object) -> TrainingJob:
    body = {
        "metadata": {"name": "job", "creationTimestamp": "2026-01-01T11:00:00Z"},
        "spec": {"engine": {"name": "gpt"}, "roles": [{"name": "worker", "replicas": 2}]},
        "status": status,
    }
    return TrainingJob.model_validate(body)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (200_000, "2d")],
)
def test_an_age_is_as_kubectl_shows_it(seconds: int, text: str) -> None:
    assert age(NOW - timedelta(seconds=seconds), NOW) == text


def test_a_row_tells_step_loss_checkpoint_and_time_left() -> None:
    shown = row(
        job(
            phase="Running",
            ready="2/2",
            reason="Training",
            progress={"step": 50, "totalSteps": 200, "loss": 2.5, "etaAt": "2026-01-01T12:10:00Z"},
            checkpoint={"incarnation": 1, "step": 40, "tier": "remote", "time": "2026-01-01T11:59:30Z"},
            restarts={"total": 1},
        ),
        NOW,
    )
    assert shown == ["job", "Running", "2/2", "50/200", "2.5000", "10m", "step 40, 30s ago", "1", "", "60m"]


def test_a_job_nobody_has_looked_at_says_so() -> None:
    assert "no operator has looked at it" in "\n".join(explanation(job(), NOW))


def test_the_explanation_marks_trouble_and_names_the_last_fault() -> None:
    condition = {
        "type": "Restarting", "status": "True", "reason": "RankKilled", "message": "rank 1 was killed",
        "lastTransitionTime": "2026-01-01T11:59:00Z",
    }  # fmt: skip
    last = {
        "reason": "RankKilled",
        "message": "rank 1 was killed",
        "rank": 1,
        "node": "n2",
        "at": "2026-01-01T11:59:00Z",
    }
    text = "\n".join(
        explanation(
            job(
                phase="Restarting", conditions=[condition], restarts={"total": 3, "inWindow": 2, "last": last}
            ),
            NOW,
        )
    )
    assert "! Restarting=True for 60s: RankKilled" in text
    assert "rank 1 on node n2" in text and "2 of 10 counted restarts used" in text
    assert "No checkpoints" in text


LINES = ["convoy: starts", "[1/0] a", "[1/1] b", "[2/0] c", "[x/0] d"]


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
