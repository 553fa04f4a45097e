"""Tests of a ServingJob that is scaled to zero, on real nodes."""

from __future__ import annotations

import time

import pytest

from e2e.bench.autoscaling.activator import COLD_SECONDS, COOLDOWN, role, wait_for_zero
from e2e.drive.serving_jobs import ServingJobs, complete, load

pytestmark = pytest.mark.full


def test_a_job_at_zero_holds_requests_and_loses_none_in_either_direction(serving: ServingJobs) -> None:
    serving.create("zero", roles=[role()])
    wait_for_zero(serving, "zero")
    url = serving.url("zero")
    assert serving.status("zero")["roles"][0]["desired"] == 0
    activators = {pod.spec.node_name for pod in serving.pods("zero")}
    assert len(activators) == 2, "the two activators are on different nodes"
    assert complete(url, seconds=COLD_SECONDS)["choices"], "the first request gets its response"
    wait_for_zero(serving, "zero")
    with load(url, 15.0, 15.0, "--no-keep-alive", "--timeout=60") as running:
        burst = running.wait(120)
    assert burst["ok"] == burst["scheduled"] > 0, burst["causes"]
    # Each of these requests may find the job on its way to zero.
    gap = COOLDOWN + 8.0
    with load(url, 1.0 / gap, 3 * gap, "--arrivals=constant", "--timeout=60") as running:
        rare = running.wait(240)
    assert rare["ok"] == rare["scheduled"] > 0, rare["causes"]
    wait_for_zero(serving, "zero")


def test_a_job_without_a_replica_that_starts_refuses_what_waits_too_long(serving: ServingJobs) -> None:
    serving.create("stuck", roles=[role()])
    wait_for_zero(serving, "stuck")
    impossible = {"spec": {"containers": [{"resources": {"requests": {"cpu": "1000"}}}]}}
    serving.patch("stuck", roles=[{**role(), "template": impossible}])
    wait_for_zero(serving, "stuck")
    began = time.monotonic()
    with load(serving.url("stuck"), 10.0, 2.0, "--no-keep-alive", "--timeout=90") as running:
        report = running.wait(180)
    assert report["shed"] == report["scheduled"] > 0, report["causes"]
    assert time.monotonic() - began < 80
