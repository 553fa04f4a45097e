"""Tests of the goodput ledger. It must agree with the ranks' own clocks and with the recorded times of
faults.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from convoy_crds.goodput import Cause, totals
from convoy_crds.trainingjob import TrainingJob
from e2e.cluster.cluster import Cluster
from e2e.drive.cluster_state import restore
from e2e.drive.fault_injection import JobUnderTest
from e2e.drive.job_watch import JobWatch
from e2e.drive.jobs import Jobs
from e2e.drive.recovery import moment
from e2e.drive.shared_volumes import shared_volume
from e2e.drive.step_clock import formations, productive_and_recompute, timed_script

SECONDS, SHARE = 0.5, 0.05
"""Allowed error of a cause's time: SECONDS, or the fraction SHARE of the time if that is longer."""
STEPS = 400
"""Number of steps that each process makes: more than it makes before any of the faults."""
NAME = "ledger"


@pytest.fixture
def volume(cluster: Cluster, jobs: Jobs) -> Iterator[str]:
    """Yield a claim for the script's files. Delete the jobs before the claim."""
    with shared_volume(cluster, jobs.namespace) as name:
        yield name
        jobs.delete_all()


@pytest.mark.full
def test_each_cause_of_lost_time_agrees_with_the_faults(cluster: Cluster, jobs: Jobs, volume: str) -> None:
    decided: list[float] = []
    with timed_script(jobs, NAME, volume, STEPS) as spec:
        jobs.create(NAME, **spec, recovery={"fencing": "Commit"})
        try:
            with JobWatch(jobs, NAME) as watch:
                watch.until(lambda: _cause(watch) == "productive", 120, "it trains")
                job = JobUnderTest(cluster, jobs, NAME, watch)
                for fault in (job.kill_rank, job.delete_pod, job.kill_node):
                    watch.until(lambda: _cause(watch) == "productive", 60, "the job makes further steps")
                    _train(watch, 4)
                    recovery = fault()
                    decided.append(recovery.fault_at + recovery.decided)
                restore(cluster)
                watch.until(lambda: watch.status.get("phase") == "Succeeded", 120, "it ends")
                compare(cluster, jobs, volume, watch, decided)
        finally:
            restore(cluster)
            jobs.delete(NAME)


def _cause(watch: JobWatch) -> str:
    cause: str = (watch.status.get("goodput") or {}).get("cause", "")
    return cause


def _train(watch: JobWatch, seconds: float) -> None:
    """Let the job make steps for this many seconds of wall-clock time."""
    until = time.monotonic() + seconds
    watch.until(lambda: time.monotonic() >= until, seconds + 5, "a while")


def compare(cluster: Cluster, jobs: Jobs, volume: str, watch: JobWatch, decided: list[float]) -> None:
    """Assert that the ledger agrees with the ranks' records. `decided` has the Unix times in seconds at
    which the operator decided to restart the job.
    """
    raw = jobs.get(NAME)
    job = TrainingJob.model_validate({**(raw or {}), "metadata": {"name": NAME}})
    ledger = totals(job.status.goodput, datetime.now(UTC))
    made = moment((raw or {})["metadata"]["creationTimestamp"])
    placed = max(
        next(state.at for state in states if state.body["spec"].get("nodeName"))
        for states in list(watch.pods.values())[:2]
    )
    found = formations(cluster, volume, 2)
    assert len(found) == len(decided) + 1
    productive, recompute = productive_and_recompute(found)
    truth = {
        Cause.SCHEDULE: placed - made,
        Cause.START: found[0].first_step_end - placed,
        Cause.PRODUCTIVE: productive,
        Cause.RECOMPUTE: recompute,
        Cause.FINISH: found[-1].finished_at - max(found[-1].ends.values()),
        # No step ended between a formation's last step and the operator's decision, so this time counts as
        # detection.
        Cause.DETECT: sum(
            at - max(formation.ends.values()) for formation, at in zip(found[:-1], decided, strict=True)
        ),
        Cause.RESTART: sum(
            formation.first_step_end - at for formation, at in zip(found[1:], decided, strict=True)
        ),
    }
    print({cause.value: (ledger.get(cause, 0.0), round(seconds, 2)) for cause, seconds in truth.items()})
    ends = (found[-1].finished_at, moment((raw or {})["status"]["completionTime"]) + 1)
    whole = sum(ledger.values())
    assert ends[0] - made - SECONDS < whole < ends[1] - made + SECONDS, "the causes add up to the job's age"
    # At the end of the job, the operator needs time to learn that the ranks have ended. It counts as
    # detection too.
    truth[Cause.DETECT] += max(0.0, whole - (ends[0] - made))
    for cause, seconds in truth.items():
        assert abs(ledger.get(cause, 0.0) - seconds) <= max(SECONDS, SHARE * seconds), (cause, ledger, truth)
