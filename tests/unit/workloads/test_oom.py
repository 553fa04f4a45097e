from __future__ import annotations

from pathlib import Path

import pytest

from convoy_workloads.launcher.oom import OomCounter, candidates, parse_count


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
def test_both_formats_are_read(text: str, count: int | None) -> None:
    assert parse_count(text) == count


def test_where_the_counter_may_be() -> None:
    assert candidates("0::/\n", "/c") == ["/c/memory.events", "/c/memory.events"]
    assert candidates("0::/kubepods/pod1\n", "/c")[0] == "/c/kubepods/pod1/memory.events"
    both = candidates("4:cpu:/\n3:memory,hugetlb:/kubepods/pod1\n", "/c")
    assert both == ["/c/memory/kubepods/pod1/memory.oom_control", "/c/memory/memory.oom_control"]


def test_kills_are_counted_from_one_look_to_the_next(tmp_path: Path) -> None:
    membership, events = tmp_path / "cgroup", tmp_path / "memory.events"
    membership.write_text("0::/elsewhere\n")
    events.write_text("oom_kill 4\n")
    counter = OomCounter(str(tmp_path), str(membership))
    assert counter.take() == 0
    events.write_text("oom_kill 6\n")
    assert (counter.take(), counter.take()) == (2, 0)


def test_without_a_counter_nothing_is_counted(tmp_path: Path) -> None:
    assert OomCounter(str(tmp_path), str(tmp_path / "none")).take() == 0
