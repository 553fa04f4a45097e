"""Tests of the demo's timeout and of the texts that it prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Progress
from e2e.cluster.state import NodeRecord, State
from e2e.demo.__main__ import STILL_SECONDS, Injector, StallTimer, next_steps, status_line
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


@dataclass
class Ended:
    """A stand-in for a job that ended before its first fault, and for the watch of the job."""

    phase: str

    @property
    def watch(self) -> Ended:
        return self

    @property
    def status(self) -> dict[str, Any]:
        return {"phase": self.phase, "incarnation": 1}

    def until(self, holds: Callable[[], bool], seconds: float, what: str) -> None:
        assert not holds(), what
        raise AssertionError(f"timed out after {seconds:.0f} s: {what}")

    def kill_rank(self) -> None:
        raise AssertionError("the fault was injected")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_job_that_ended_before_a_fault_ends_the_demo_at_once(phase: str) -> None:
    job: Any = Ended(phase)
    with pytest.raises(ClusterError, match=f"is {phase} before this fault: kill -9 of rank 1; .*demo.yaml"):
        Injector(job, Progress(quiet=True)).kill_rank()


@pytest.mark.parametrize(
    ("phase", "nodes", "present", "absent"),
    [
        ("", 0, "", "cluster"),
        ("starting", 1, "is incomplete. To delete it: make clean", "is up"),
        ("up", 0, "The cluster is up.", "down"),
        ("up", 1, "These nodes are down: node-1.", "incomplete"),
    ],
)
def test_a_failure_says_what_is_left_of_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str, nodes: int, present: str, absent: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cluster = Cluster("demo", checkout=tmp_path)
    if phase:
        names = [f"node-{number}" for number in range(1, nodes + 1)]
        records = {name: NodeRecord(number + 1) for number, name in enumerate(names)}
        options = {"binaries": str(tmp_path)}
        cluster.file.save(
            State(cluster.identity, "demo", str(tmp_path), 1, phase=phase, options=options, nodes=records)
        )
    text = next_steps(cluster, "demo")
    assert present in text and absent not in text


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
