"""Tests of the times of ServingJobs that are read from the audit log."""

from __future__ import annotations

import pytest
from e2e.bench.rig.audit import Entry
from e2e.bench.rig.jobs import THOUSAND_SERVERS, serving_job
from e2e.bench.rig.servers import complete_since, job_of, reactions

from convoy_crds.servingjob import ServingJob


def entry(verb, resource, at, name, sub="", code=200, **status):
    body = {"status": status} if status else {}
    return Entry("operator", verb, resource, sub, "bench", name, code, at - 0.01, at, body)


def test_a_rollout_is_complete_when_a_revision_runs_in_all_replicas():
    entries = [
        entry("patch", "servingjobs", 1.0, "a", "status", updateRevision="one"),
        entry("patch", "servingjobs", 2.0, "a", "status", currentRevision="one"),
        entry("patch", "servingjobs", 3.0, "a", "status", currentRevision="two"),
        entry("patch", "servingjobs", 2.5, "b", "status", code=409, currentRevision="one"),
        entry("patch", "trainingjobs", 2.5, "c", "status", currentRevision="one"),
    ]
    assert complete_since(entries) == {"a": 2.0}
    assert complete_since(entries, after=2.0) == {"a": 3.0}


def test_a_reaction_is_the_first_pod_after_its_cause():
    entries = [
        entry("create", "pods", 1.0, "job-1000x3-7-server-0-0", code=201),
        entry("create", "pods", 5.26, "job-1000x3-7-server-3-0", code=201),
        entry("create", "pods", 5.5, "job-1000x3-7-server-4-0", code=201),
        entry("create", "pods", 5.1, "job-1000x3-8-server-3-0", code=403),
        entry("delete", "pods", 5.1, "job-1000x3-8-server-3-0"),
    ]
    found = reactions(entries, {"job-1000x3-7": 5.0, "job-1000x3-8": 5.0})
    assert found == [pytest.approx(0.25)]


def test_names_and_specs_of_the_jobs_are_valid():
    name = THOUSAND_SERVERS.names[-1]
    made = ServingJob.model_validate(serving_job(name, THOUSAND_SERVERS.workers))
    assert made.spec.replicas == 3 and THOUSAND_SERVERS.pods == 3000
    assert job_of(f"{name}-server-10-0") == name
    assert len(f"{name}-server-999-63") <= 63
