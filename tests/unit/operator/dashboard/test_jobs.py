"""Tests of the table rows of jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.operator.dashboard.builders import NOW, ago, parsed, raw

from convoy_crds.summaries import NOT_RECONCILED
from convoy_crds.trainingjob import TrainingJob
from convoy_operator.dashboard.core import jobs
from convoy_operator.dashboard.core.objects import parser_of
from convoy_operator.dashboard.core.row_cache import RowCache
from convoy_operator.dashboard.core.rows import Tone


def test_a_running_job_in_a_row() -> None:
    row = jobs.row(
        parsed(
            phase="Running",
            reason="Training",
            message="2 ranks run",
            ready="2/2",
            progress={"step": 300, "totalSteps": 1200},
            checkpoint={"incarnation": 1, "step": 250, "tier": "peer", "time": ago(minutes=7)},
            restarts={"total": 3},
            internal={"restarts": {"times": [ago(minutes=61), ago(minutes=59)]}},
            goodput={
                "seconds": {"productive": 2700, "restart": 600},
                "cause": "productive",
                "since": ago(minutes=5),
            },
        ),
        NOW,
    )
    assert [cell.text for cell in row.cells] == [
        "team/gpt",
        "Running",
        "2/2",
        "300/1200",
        "25%",
        "7m ago, peer",
        "3",
        "83%",
        "60m",
        "Training: 2 ranks run",
    ]
    assert (row.cells[0].href, row.group, row.cells[4].share) == ("/jobs/team/gpt", "Running", 0.25)
    assert row.cells[6].tone is Tone.WARN


def test_restarts_outside_the_window_are_no_warning() -> None:
    row = jobs.row(parsed(restarts={"total": 1}, internal={"restarts": {"times": [ago(minutes=61)]}}), NOW)
    assert (row.cells[6].text, row.cells[6].tone) == ("1", Tone.PLAIN)


@pytest.mark.parametrize(
    ("status", "phase", "tone"),
    [
        ({}, "New", Tone.WARN),
        ({"phase": "Pending", "reason": "WaitingForPods"}, "Pending", Tone.BUSY),
        ({"phase": "Pending", "reason": "Unschedulable"}, "Pending", Tone.WARN),
        ({"phase": "Running", "reason": "Training"}, "Running", Tone.GOOD),
        ({"phase": "Running", "reason": "Shrunk"}, "Running", Tone.WARN),
        ({"phase": "Restarting"}, "Restarting", Tone.WARN),
        ({"phase": "Suspended"}, "Suspended", Tone.QUIET),
        ({"phase": "Failed", "reason": "RankFailed"}, "Failed", Tone.BAD),
        ({"phase": "Succeeded"}, "Succeeded", Tone.GOOD),
    ],
)
def test_phases_have_a_text_and_a_tone(status: dict[str, Any], phase: str, tone: Tone) -> None:
    cell = jobs.row(parsed(**status), NOW).cells[1]
    assert (cell.text, cell.tone) == (phase, tone)


def test_unknown_values_are_dashes_and_a_new_job_names_the_operator() -> None:
    row = jobs.row(parsed(), NOW)
    assert {row.cells[number].text for number in (2, 3, 4, 5, 7)} == {"-"}
    assert row.cells[-1].text == NOT_RECONCILED


def test_an_unreadable_job_is_shown_with_its_error() -> None:
    body = raw()
    body["spec"]["roles"][0]["replicas"] = "many"
    row = jobs.row(parser_of(TrainingJob)(body), NOW)
    assert (len(row.cells), row.group) == (len(jobs.COLUMNS), jobs.UNREADABLE)
    assert "spec.roles.0.replicas" in row.cells[-1].text


def test_the_newest_job_is_first_and_phases_are_counted_in_order() -> None:
    found = [
        parsed("old", ago(days=2), phase="Failed"),
        parsed("new", ago(minutes=1), phase="Running"),
        parsed("other", ago(days=1), phase="Running"),
    ]
    assert [row.key for row in jobs.rows(found, NOW)] == ["team/new", "team/other", "team/old"]
    assert list(jobs.counts(found).items()) == [("Running", 2), ("Failed", 1)]


def test_the_goodput_of_an_ended_job_does_not_change() -> None:
    ledger = {"seconds": {"productive": 90.0, "start": 10.0}, "cause": "start", "since": ago(days=3)}
    job = parsed(phase="Succeeded", completionTime=ago(days=3), goodput=ledger).model
    assert job is not None and jobs.goodput(job, NOW) == 0.9


def test_a_row_is_rebuilt_when_its_job_changes_or_its_ages_grow() -> None:
    cache = RowCache(jobs.row)
    first = cache.row(parsed(phase="Running"), NOW)
    assert cache.row(parsed(phase="Running"), NOW + timedelta(seconds=4)) is first
    assert cache.row(parsed(phase="Running"), NOW + timedelta(seconds=5)) is not first
    body = raw(phase="Failed")
    body["metadata"]["resourceVersion"] = "8"
    assert cache.row(parser_of(TrainingJob)(body), NOW + timedelta(seconds=5)).group == "Failed"


@pytest.mark.parametrize(
    ("user", "everywhere", "text"),
    [
        ("ada", True, ("There are no TrainingJobs: kubectl apply",)),
        ("ada", False, ("that ada may list", "--clusterrole=convoy-trainingjobs-viewer --user=ada")),
        ("ada; rm", False, ("that ada; rm may list", "--user='ada; rm'")),
    ],
)
def test_an_empty_list_of_jobs_has_an_explanation(user: str, everywhere: bool, text: tuple[str, ...]) -> None:
    text = jobs.nothing(user, everywhere)
    assert [words for words in text if words not in text] == []
    assert ("may list" in text) is not everywhere


@pytest.mark.parametrize(
    ("manager", "leaves", "status", "phase", "why"),
    [
        ("example.com/other", False, {}, jobs.EXTERNAL, "managed by example.com/other"),
        (
            "example.com/other",
            False,
            {"phase": "Running", "reason": "Training"},
            "Running",
            "managed by example.com/other; Training",
        ),
        ("convoy.dev/operator", False, {}, jobs.UNKNOWN, NOT_RECONCILED),
        (
            None,
            True,
            {"phase": "Running", "reason": "Training"},
            jobs.DELETING,
            "being deleted since 2026-05-01 11:59:00Z; Training",
        ),
    ],
)
def test_rows_of_external_and_deleting_jobs(
    manager: str | None, leaves: bool, status: dict[str, Any], phase: str, why: str
) -> None:
    body = raw(**status)
    if manager:
        body["spec"]["managedBy"] = manager
    if leaves:
        body["metadata"]["deletionTimestamp"] = ago(minutes=1)
    one = parser_of(TrainingJob)(body)
    row = jobs.row(one, NOW)
    assert (row.group, row.cells[1].text, row.cells[-1].text) == (phase, phase, why)
    assert jobs.counts([one]) == {phase: 1}
