"""Tests of the demo's timeout and of its status line."""

from __future__ import annotations

from e2e.demo import STILL_SECONDS, StallTimer, status_line


def test_further_steps_extend_the_stall_timeout() -> None:
    timer = StallTimer(until=STILL_SECONDS)
    timer.step(0, 100.0)
    assert timer.until == 100.0 + STILL_SECONDS
    timer.step(7, 200.0)
    timer.step(3, 300.0)  # A lower step after a restart is no progress.
    assert timer.until == 200.0 + STILL_SECONDS


def test_the_status_of_a_job_fits_one_line() -> None:
    assert status_line({}) == "Pending    0 ready"
    status = {
        "phase": "Running",
        "reason": "Training",
        "ready": "2/2",
        "progress": {"step": 3, "totalSteps": 9, "loss": 2.5},
    }
    assert status_line(status) == "Running  Training  2/2 ready  step 3/9 loss 2.500"
