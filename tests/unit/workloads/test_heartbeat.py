from __future__ import annotations

import os
from pathlib import Path

import pytest

from convoy_workloads.runtime.heartbeat import (
    FINISHED,
    SILENT,
    STARTED,
    STEPPING,
    Heartbeat,
    HeartbeatWriter,
    hung,
    read,
)


@pytest.mark.parametrize(
    ("state", "silence", "is_hung"),
    [
        (SILENT, 1e9, False),
        (STARTED, 29.9, False),
        (STARTED, 30.1, True),
        (STEPPING, 9.9, False),
        (STEPPING, 10.1, True),
        (FINISHED, 9.9, False),
        (FINISHED, 10.1, True),
    ],
)
def test_a_rank_is_hung_after_ten_seconds_without_progress(state: int, silence: float, is_hung: bool) -> None:
    assert hung(Heartbeat(state, 100.0), 100.0 + silence, 10.0) == is_hung


def test_the_launcher_reads_what_the_rank_wrote(tmp_path: Path) -> None:
    path = tmp_path / "beat"
    path.touch()
    assert read(str(path)) == Heartbeat()
    writer = HeartbeatWriter(str(path))
    seen = []
    for act in (
        writer.touch,
        writer.start,
        lambda: writer.step(41),
        lambda: writer.step(42),
        lambda: writer.step(42),
        writer.touch,
        writer.finish,
    ):
        act()
        heartbeat = read(str(path))
        seen.append((heartbeat.state, heartbeat.step))
    assert seen == [
        (SILENT, 0),
        (STARTED, 0),
        (STEPPING, 41),
        (STEPPING, 42),
        (STEPPING, 42),
        (STEPPING, 42),
        (FINISHED, 42),
    ]


def test_step_end_times_are_wall_clock_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "beat"
    path.touch()
    writer = HeartbeatWriter(str(path))
    firsts = []
    for second, number in ((100, 41), (101, 42), (102, 42), (103, 40)):
        monkeypatch.setattr("time.time", lambda second=second: second)
        firsts.append(writer.step(number))
    writer.record_save(1.25)
    writer.record_save(0.5)
    assert firsts == [True, False, False, False]
    heartbeat = read(str(path))
    # A repeated or an earlier step does not count as progress.
    assert (heartbeat.step, heartbeat.step_ms, heartbeat.first_step_ms) == (42, 101_000, 100_000)
    assert (heartbeat.state, heartbeat.checkpoint_ms) == (STEPPING, 1750)


def test_a_touch_updates_the_time(tmp_path: Path) -> None:
    path = tmp_path / "beat"
    path.touch()
    writer = HeartbeatWriter(str(path))
    writer.step(1)
    before = read(str(path)).at
    writer.touch()
    assert read(str(path)).at > before


def test_a_heartbeat_without_a_file_does_nothing(tmp_path: Path) -> None:
    assert HeartbeatWriter("").step(1)
    HeartbeatWriter(str(tmp_path / "absent")).step(1)
    assert read(str(tmp_path / "absent")) == Heartbeat()


def test_a_report_after_the_last_step_is_a_heartbeat_but_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "beat"
    path.touch()
    writer = HeartbeatWriter(str(path))
    seen = []
    acts = [
        lambda: writer.step(42),
        writer.finish,
        lambda: writer.step(42),
        writer.finish,
        lambda: writer.step(43),
    ]
    for second, act in enumerate([*acts, writer.finish, writer.start], 100):
        monkeypatch.setattr("time.time", lambda second=second: second)
        before = read(str(path)).at
        act()
        heartbeat = read(str(path))
        assert heartbeat.at > before and heartbeat.pid == os.getpid()
        seen.append((heartbeat.state, heartbeat.step, heartbeat.finished_ms))
    assert seen == [
        (STEPPING, 42, 0),
        (FINISHED, 42, 101_000),
        (FINISHED, 42, 101_000),
        (FINISHED, 42, 101_000),
        (STEPPING, 43, 0),
        (FINISHED, 43, 105_000),
        (STARTED, 43, 0),
    ]


def test_a_wait_with_a_limit_of_its_own_is_no_hang(tmp_path: Path) -> None:
    path = tmp_path / "beat"
    path.touch()
    writer = HeartbeatWriter(str(path))
    writer.extend(1000.0)
    assert read(str(path)) == Heartbeat()
    writer.step(1)
    at = read(str(path)).at
    writer.extend(1000.0)
    allowed = read(str(path))
    assert not hung(allowed, at + 1000.0, 10.0)
    assert hung(allowed, allowed.at + 10.1, 10.0)
    writer.touch()
    assert read(str(path)).at < at + 1000.0


@pytest.mark.parametrize("joined", [False, True])
def test_a_heartbeat_distinguishes_a_joined_program_from_the_hook(tmp_path: Path, joined: bool) -> None:
    path = tmp_path / "beat"
    path.touch()
    HeartbeatWriter(str(path), joined).start()
    assert read(str(path)).joined is joined
