"""Tests of the result in a job's status: from the agent's report, or from the termination message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from convoy_controllers.testing.builders import ToyCluster, make_engine, make_job


def cluster(**spec: Any) -> ToyCluster:
    return ToyCluster(make_job(**spec), make_engine()).settle()


def refused(job: ToyCluster) -> str:
    found = (one for one in job.job.status.conditions if one.type == "ResultRefused")
    return next((f"{one.reason}: {one.message}" for one in found), "")


def test_the_status_has_the_result_as_soon_as_the_job_has_succeeded() -> None:
    job = cluster()
    job.rank(0, result='{"accuracy": 0.93, "none": null}').exit_all().settle()
    assert job.job.status.phase == "Succeeded"
    assert job.job.status.result == {"accuracy": 0.93}
    assert job.job.status.to_dict()["result"] == {"accuracy": 0.93}
    assert not refused(job)


def test_a_job_without_a_result_has_none() -> None:
    job = cluster()
    job.exit_all().settle()
    assert "result" not in job.job.status.to_dict() and not refused(job)


def test_only_the_result_of_rank_0_counts() -> None:
    job = cluster()
    job.rank(1, result='{"a": 1}').exit_all().settle()
    assert job.job.status.result is None


def test_a_failed_job_has_no_result() -> None:
    job = cluster(recovery={"maxRestarts": 0})
    job.rank(0, result='{"a": 1}').exit_all(1).settle()
    assert job.job.status.phase == "Failed" and job.job.status.result is None


@pytest.mark.parametrize(
    ("text", "problem"), [("[1]", "not a JSON object"), ("x" * 3501, "more than 3500 bytes")]
)
def test_a_refused_result_becomes_a_condition_of_a_succeeded_job(text: str, problem: str) -> None:
    job = cluster()
    job.rank(0, result=text).exit_all().settle()
    assert job.job.status.phase == "Succeeded" and job.job.status.result is None
    assert "MalformedResult" in refused(job) and problem in refused(job)


@pytest.mark.parametrize(("left", "found"), [('{"a": 1}\n', {"a": 1}), ("bye", None), ("", None)])
def test_without_the_agent_the_termination_message_has_the_result(
    left: str, found: dict[str, Any] | None
) -> None:
    job = cluster()
    for name in sorted(job.pods):
        job.pod(name, phase="Succeeded", exit_code=0, termination_message=left)
    for uid, view in list(job.views.items()):
        job.views[uid] = replace(view, ranks=(), incarnation=0, launcher_connected=False)
    job.settle()
    assert job.job.status.phase == "Succeeded"
    assert job.job.status.result == found and not refused(job)
