"""Tests of `convoy spot requests`, for jobs that run and jobs that have ended."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.cli.fake_client import client
from typer.testing import CliRunner

from convoy.cli.__main__ import app
from convoy.cli.spot import requests
from convoy_crds.trainingjob import TrainingJob
from convoy_workloads.engines.spotlight.request_counts import from_metrics, to_metrics
from convoy_workloads.spot.ledger.request import EVENTS, Request, RequestKind
from convoy_workloads.spot.ledger.requests import RequestLedger


def counts(**changes: int) -> dict[str, int]:
    book = RequestLedger(30.0)
    book.plan([Request("flow", 0, 0, seed, RequestKind.ROLLOUT, 0) for seed in range(3)])
    return {**book.counts(), **changes}


def progress(found: dict[str, int], step: int = 12, **more: float) -> dict[str, Any]:
    return {
        "step": step + 1,
        "metrics": [
            {"name": name, "value": value, "step": step}
            for name, value in {**to_metrics(found), **more}.items()
        ],
        "time": (datetime.now(UTC) - timedelta(hours=5, minutes=30)).isoformat(),
    }


def show(monkeypatch: pytest.MonkeyPatch, status: dict[str, Any], *words: str) -> Any:
    job = TrainingJob.model_validate(
        {
            "metadata": {"name": "flow"},
            "spec": {"roles": [{"name": "trainer", "replicas": 1}]},
            "status": status,
        }
    )
    jobs = SimpleNamespace(get=lambda name: job)
    monkeypatch.setattr(requests, "connect", lambda *_: client(training=jobs))
    return CliRunner().invoke(app, ["spot", "requests", "flow", *words])


ENDED = {
    "phase": "Succeeded",
    "result": {"requests": counts(), "cost": 1.5},
    "progress": progress(counts(), 9),
}


def test_every_count_of_the_ledger_has_a_meaning_and_a_metric() -> None:
    assert set(requests.MEANINGS) == set(counts())
    assert set(EVENTS) < set(requests.MEANINGS)
    distinct = {name: number for number, name in enumerate(counts())}
    assert from_metrics(to_metrics(distinct)) == distinct


def test_counts_of_a_running_job_say_of_which_step_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    status = {"phase": "Running", "progress": progress(counts(timedOut=2), loss_of_others=1.0)}
    head, *lines = show(monkeypatch, status).output.splitlines()
    assert head == "trainingjob/flow: Running; counts after step 12, reported 5h ago"
    rows = [line.split(maxsplit=2) for line in lines]
    assert ["planned", "3", "requests in all"] in rows and ["timedOut", "2", "leases that timed out"] in rows
    found = json.loads(show(monkeypatch, status, "--format", "json").output)
    assert found["requests"] == counts(timedOut=2)
    assert (found["phase"], found["step"], found["final"]) == ("Running", 12, False)


def test_counts_in_the_result_of_a_job_are_final(monkeypatch: pytest.MonkeyPatch) -> None:
    head, *lines = show(monkeypatch, ENDED).output.splitlines()
    assert head == "trainingjob/flow: Succeeded; counts at the end of the job"
    assert ["open", "3"] in [line.split()[:2] for line in lines]
    found = json.loads(show(monkeypatch, ENDED, "--format", "json").output)
    assert found["requests"] == counts() and found["final"]


NONE = "neither status.result.requests nor metrics requests_* in status.progress"
MISSING = "3 requests were planned, but 2 are open or have ended"


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({}, f"{NONE} (not reconciled yet)"),
        ({"phase": "Running", "progress": {"step": 1}}, f"{NONE} (Running)"),
        ({"phase": "Succeeded", "result": {"loss": 1}}, f"{NONE} (Succeeded)"),
        ({"phase": "Succeeded", "result": {"requests": "no"}}, f"{NONE} (Succeeded)"),
        ({"phase": "Running", "progress": progress(counts(open=2))}, MISSING),
        ({"phase": "Succeeded", "result": {"requests": counts(open=2)}}, MISSING),
    ],
)
def test_missing_requests_are_an_error(
    monkeypatch: pytest.MonkeyPatch, status: dict[str, Any], message: str
) -> None:
    found = show(monkeypatch, status)
    assert found.exit_code == 1
    assert f"error: trainingjob/flow: {message}" in found.output
