"""Tests of the table that `convoy get` prints."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from convoy.cli.__main__ import app
from convoy.cli.show import TRAINING, age, row, table, warning_message
from convoy.cli.table import fitting_columns, format_bytes
from convoy_crds.trainingjob import TrainingJob

from .fake_client import client

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
def test_an_age_has_the_format_of_kubectl(seconds: int, text: str) -> None:
    assert age(NOW - timedelta(seconds=seconds), NOW) == text


def test_a_row_shows_step_loss_checkpoint_and_time_left() -> None:
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
    assert list(shown.values()) == [
        "job", "Running", "2/2", "50/200", "2.5000", "10m", "step 40, 30s ago", "1", "60m", "",
        "Training", "",
    ]  # fmt: skip


def test_independent_pods_are_counted_apart() -> None:
    assert row(job(phase="Running", ready="2/2", independent="3/8"), NOW)["READY"] == "2/2 +3/8"


@pytest.mark.parametrize(
    ("placement", "text"),
    [
        (None, ""),
        ({"gang": "Native", "group": "job-1"}, ""),
        ({"summary": "2 racks, 3 hops", "hops": 3}, "2 racks, 3 hops"),
        (
            {"queue": {"name": "team-a", "state": "Waiting"}, "summary": "1 rack, 2 hops"},
            "queue team-a: Waiting",
        ),
        ({"queue": {"name": "team-a", "state": "Admitted"}, "summary": "1 rack, 2 hops"}, "1 rack, 2 hops"),
    ],
)
def test_the_placement_is_the_queue_until_admission_and_then_the_domains(placement: Any, text: str) -> None:
    assert row(job(phase="Running", placement=placement), NOW)["PLACEMENT"] == text


def test_columns_without_any_text_are_left_out() -> None:
    rows = [row(job(phase="Running"), NOW), row(job(phase="Running"), NOW)]
    heads = [one.header for one in table(rows, None, TRAINING).columns]
    assert not {"PLACEMENT", "MESSAGE"} & {*heads} and "REASON" in heads
    rows[0]["PLACEMENT"] = "2 racks, 3 hops"
    assert "PLACEMENT" in [one.header for one in table(rows, None, TRAINING).columns]


@pytest.mark.parametrize(
    ("progress", "loss"),
    [({"step": 1}, "-"), ({"step": 1, "loss": 0.0}, "0.0000"), ({"step": 1, "diverged": True}, "NaN")],
)
def test_a_diverged_loss_differs_from_a_missing_one(progress: dict[str, Any], loss: str) -> None:
    assert row(job(phase="Running", progress=progress), NOW)["LOSS"] == loss


def test_the_message_is_for_jobs_in_trouble() -> None:
    assert warning_message(job(phase="Running", reason="Training", message="2 ranks run")) == ""
    assert warning_message(job(phase="Pending", reason="Unschedulable", message="no room")) == "no room"
    assert warning_message(job(phase="Failed", reason="RankFailed", message="exit code 1")) == "exit code 1"
    assert "no operator" in warning_message(job())


@pytest.mark.parametrize(
    ("width", "shown"),
    [(None, "abcd"), (26, "abcd"), (25, "acd"), (18, "ac"), (1, "ac")],
)
def test_columns_are_hidden_in_order(width: int | None, shown: str) -> None:
    assert "".join(fitting_columns({"a": 5, "b": 5, "c": 5, "d": 5}, ["b", "d"], width)) == shown


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0"), (1023, "1023"), (1024, "1.0Ki"), (1536 * 2**20, "1.5Gi"), (2**42, "4.0Ti")],
)
def test_bytes_have_the_units_of_kubernetes(size: int, text: str) -> None:
    assert format_bytes(size) == text


def test_the_result_follows_the_table_of_one_job(monkeypatch: pytest.MonkeyPatch) -> None:
    done = job(phase="Succeeded", result={"accuracy": 0.93, "name": "é"})
    training = SimpleNamespace(get=lambda _: done, list=lambda **_: [done])
    monkeypatch.setattr("convoy.cli.show.connect", lambda *_: client(training=training))
    assert (
        CliRunner().invoke(app, ["get", "job"]).output.endswith('result: {"accuracy": 0.93, "name": "é"}\n')
    )
    assert "result" not in CliRunner().invoke(app, ["get"]).output
