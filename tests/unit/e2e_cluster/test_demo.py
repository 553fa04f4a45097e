"""Tests of the demo's timeout and of the texts that it prints."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from e2e.demo.__main__ import STILL_SECONDS, StallTimer, status_line
from e2e.demo.story import SurvivedFault, faults_table, loss_curve, losses, timeline_text

from convoy_operator.dashboard.core.rows import Tone
from convoy_operator.dashboard.core.timeline import TimelineEntry

RANK = SurvivedFault(
    title="kill -9 of rank 1",
    reason="RankFailed",
    last_step=60,
    restored_step=48,
    replaced_pods=0,
    noticed=0.1,
    next_step=1.8,
)


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


def test_the_table_has_the_recovery_time_and_the_lost_steps_of_each_fault() -> None:
    header, line = faults_table([RANK]).splitlines()
    assert line.split("  ") != header.split("  ")
    assert "1.8 s" in line and "12 (48 to 60)" in line
    assert header.index("NEXT STEP") == line.index("1.8 s")


def test_a_fault_right_after_a_checkpoint_costs_no_step() -> None:
    assert SurvivedFault("a", "b", 48, 60, 0, 0.1, 1.0).steps_lost == 0


def test_the_timeline_starts_with_the_oldest_event() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    entries = [
        TimelineEntry(start + timedelta(seconds=9), "RankFailed", "Rank 1 died. More.", Tone.WARN),
        TimelineEntry(start + timedelta(seconds=2), "Formed", "x" * 300, Tone.PLAIN),
    ]
    first, second = timeline_text(entries, start).splitlines()
    assert first.startswith("   2.0 s  Formed: xxx") and first.endswith("...")
    assert second == "   9.0 s  RankFailed: Rank 1 died"


def test_a_repeated_step_counts_with_its_last_loss() -> None:
    first = "[1/0] step 1/9  loss 4.000\n[1/0] step 2/9  loss 3.000\n"
    second = "[2/0] step 2/9  loss 2.500  12 samples/s\n"
    assert losses([first, second]) == [(1, 4.0), (2, 2.5)]


def test_the_curve_marks_the_step_of_each_fault() -> None:
    points = [(step, 5.0 - step / 100) for step in range(1, 121)]
    lines = loss_curve(points, [RANK]).splitlines()
    assert lines[-1].strip() == "^ kill -9 of rank 1 at step 60"
    assert lines[-2].index("^") - 11 == round(59 / 119 * 59)
    assert loss_curve([], [RANK]) == ""
