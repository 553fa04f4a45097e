from __future__ import annotations

from pathlib import Path

import pytest

from convoy_workloads.launcher.oom import CHILD_SECONDS, OomDetector, counter_paths, parse_count
from convoy_workloads.launcher.rank import Rank


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n", 2),
        ("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n", 5),
        ("oom_kill_disable 0\nunder_oom 0\n", None),
        ("oom_kill many\n", None),
        ("", None),
    ],
)
def test_counters_of_both_cgroup_versions_are_parsed(text: str, count: int | None) -> None:
    assert parse_count(text) == count


def test_the_counter_is_found_in_every_cgroup_layout() -> None:
    assert counter_paths("0::/\n", "/c") == ["/c/memory.events", "/c/memory.events"]
    assert counter_paths("0::/kubepods/pod1\n", "/c")[0] == "/c/kubepods/pod1/memory.events"
    both = counter_paths("4:cpu:/\n3:memory,hugetlb:/kubepods/pod1\n", "/c")
    assert both == ["/c/memory/kubepods/pod1/memory.oom_control", "/c/memory/memory.oom_control"]


def rank(exit_code: int, signal: int = 0, killed: bool = False) -> Rank:
    one = Rank(1, 0, "")
    one.exit_code, one.signal, one.killed = exit_code, signal, killed
    return one


KILLED = rank(137, 9)


@pytest.mark.parametrize(
    ("ended", "seconds", "struck"),
    [
        (KILLED, 1, True),
        (KILLED, 100, True),
        (rank(137, 9, killed=True), 1, False),
        (rank(1), 5, True),
        (rank(1), CHILD_SECONDS + 1, False),
        (rank(137), 5, True),
        (rank(137), CHILD_SECONDS + 1, False),
        (rank(76), 1, False),
        (rank(0), 1, False),
        (rank(139, 11), 1, False),
    ],
    ids=[
        "killed",
        "killed after another",
        "killed by the launcher",
        "its data loader was killed",
        "it failed long after",
        "its program in a shell was killed",
        "its program in a shell was killed long after",
        "it lost the peer that was killed",
        "done",
        "another signal",
    ],
)
def test_an_oom_kill_is_attributed_to_the_rank_that_ended(
    tmp_path: Path, ended: Rank, seconds: float, struck: bool
) -> None:
    membership, events = tmp_path / "cgroup", tmp_path / "memory.events"
    membership.write_text("0::/elsewhere\n")
    events.write_text("oom_kill 4\n")
    detector = OomDetector(str(tmp_path), str(membership))
    assert not detector.caused_end(ended, 50.0)
    events.write_text("oom_kill 5\n")
    detector.poll(100.0)
    assert detector.caused_end(ended, 100.0 + seconds) is struck
    # A second call gives the same result, because two ranks may have been killed at the same moment.
    assert detector.caused_end(ended, 100.0 + seconds) is struck


def test_an_oom_kill_first_seen_when_the_rank_ends_counts(tmp_path: Path) -> None:
    membership, control = tmp_path / "cgroup", tmp_path / "memory" / "memory.oom_control"
    membership.write_text("4:memory:/somewhere\n")
    control.parent.mkdir()
    control.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
    detector = OomDetector(str(tmp_path), str(membership))
    control.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    assert detector.caused_end(rank(1), 1000.0)


def test_a_missing_counter_reports_no_oom_kill(tmp_path: Path) -> None:
    assert not OomDetector(str(tmp_path), str(tmp_path / "none")).caused_end(KILLED, 1.0)
