"""Tests of waiting for a job with a watch at a real API server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from convoy.client import Client, JobEnded, JobFailed, NotFound, WaitTimeout, watch
from convoy_crds.trainingjob import TrainingJob

from .conftest import SPEC, Report, condition

Waiting = Callable[..., "Future[TrainingJob]"]
SECONDS = 20.0


@pytest.fixture
def waiting(client: Client, control_plane: Any) -> Iterator[Waiting]:
    """Return a function that starts a wait in a thread. The function returns when the API server has the
    watch.
    """
    client.training_jobs.create({"metadata": {"name": "gpt"}, "spec": SPEC})

    def start_wait(until: str = "Complete", timeout: float = SECONDS) -> Future[TrainingJob]:
        before = watches(control_plane)
        future = pool.submit(client.training_jobs.wait, "gpt", until, timeout)
        deadline = time.monotonic() + SECONDS
        while watches(control_plane) <= before:
            assert time.monotonic() < deadline and not future.done(), "no watch was opened"
            time.sleep(0.02)
        return future

    with ThreadPoolExecutor(4) as pool:
        yield start_wait


def watches(plane: Any) -> float:
    """Return the number of watches of single TrainingJobs, according to the API server's metrics."""
    lines = plane.raw("/metrics").decode().splitlines()
    name = "apiserver_longrunning_requests{"
    found = [one for one in lines if one.startswith(name) and 'resource="trainingjobs"' in one]
    return sum(float(one.rsplit(" ", 1)[1]) for one in found if 'verb="WATCH"' in one)


def test_the_wait_ends_with_the_condition(waiting: Waiting, report: Report) -> None:
    found = waiting()
    report("gpt", phase="Running", conditions=[condition("Running")])
    report("gpt", phase="Succeeded", conditions=[condition("Complete", "Completed")])
    assert found.result(SECONDS).status.phase == "Succeeded"


def test_a_failure_is_raised_with_its_reason(waiting: Waiting, report: Report) -> None:
    found = waiting()
    report("gpt", phase="Failed", conditions=[condition("Failed", "MaxRestartsExceeded", "11 restarts")])
    with pytest.raises(JobFailed, match="gpt failed: MaxRestartsExceeded: 11 restarts") as raised:
        found.result(SECONDS)
    assert raised.value.reason == "MaxRestartsExceeded"


def test_a_condition_that_cannot_occur_ends_the_wait(waiting: Waiting, report: Report) -> None:
    found = waiting("Suspended")
    report("gpt", phase="Succeeded", conditions=[condition("Complete", "Completed")])
    with pytest.raises(JobEnded, match="will not be Suspended"):
        found.result(SECONDS)


def test_a_job_that_is_deleted_ends_the_wait(waiting: Waiting, client: Client) -> None:
    found = waiting()
    client.training_jobs.delete("gpt")
    with pytest.raises(NotFound, match="was deleted during the wait"):
        found.result(SECONDS)
    with pytest.raises(NotFound, match="there is no trainingjob/gpt"):
        client.training_jobs.wait("gpt", timeout=5)


def test_after_a_restart_the_old_running_does_not_count(
    waiting: Waiting, client: Client, report: Report
) -> None:
    report("gpt", phase="Running", incarnation=1, conditions=[condition("Running")])
    assert client.training_jobs.wait("gpt", "Running", 5).status.incarnation == 1
    client.training_jobs.restart("gpt")
    found = waiting("Running")
    report("gpt", phase="Running", incarnation=2)
    assert found.result(SECONDS).status.incarnation == 2


def test_a_timeout_names_the_state(waiting: Waiting, client: Client, report: Report) -> None:
    report("gpt", phase="Pending", reason="Unschedulable", message="no room")
    started = time.monotonic()
    with pytest.raises(
        WaitTimeout, match=r"gpt is not Complete after 1.5 s: it is Pending .*no room"
    ) as raised:
        client.training_jobs.wait("gpt", timeout=1.5)
    assert 1.4 < time.monotonic() - started < 6
    assert raised.value.job is not None and isinstance(raised.value, TimeoutError)


def test_an_ended_watch_is_restarted(
    waiting: Waiting, report: Report, monkeypatch: pytest.MonkeyPatch, control_plane: Any
) -> None:
    monkeypatch.setattr(watch, "WATCH_SECONDS", 1)
    found = waiting()
    with pytest.raises(TimeoutError):
        found.result(2.5)  # The wait goes on after two watches have ended.
    report("gpt", phase="Succeeded", conditions=[condition("Complete")])
    assert found.result(SECONDS).status.phase == "Succeeded"
