from __future__ import annotations

import os
from pathlib import Path

import pytest

from convoy_workloads.runtime.beat import FINISHED, SILENT, STARTED, STEPPING, Beat, Pulse, hung, read


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
def test_who_is_hung_with_ten_seconds_allowed(state: int, silence: float, is_hung: bool) -> None:
    assert hung(Pulse(state, 100.0), 100.0 + silence, 10.0) == is_hung


def test_the_launcher_reads_what_the_rank_wrote(tmp_path: Path) -> None:
    path = tmp_path / "beat"
    path.touch()
    assert read(str(path)) == Pulse()
    beat = Beat(str(path))
    seen = []
    for act in (
        beat.touch,
        beat.start,
        lambda: beat.step(41),
        lambda: beat.step(42),
        lambda: beat.step(42),
        beat.touch,
        beat.finish,
    ):
        act()
        pulse = read(str(path))
        seen.append((pulse.state, pulse.step))
    assert seen == [
        (SILENT, 0),
        (STARTED, 0),
        (STEPPING, 41),
        (STEPPING, 42),
        (STEPPING, 42),
        (STEPPING, 42),
        (FINISHED, 42),
    ]


def test_when_steps_ended_is_wall_clock_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "beat"
    path.touch()
    beat = Beat(str(path))
    firsts = []
    for second, number in ((100, 41), (101, 42), (102, 42), (103, 40)):
        monkeypatch.setattr("time.time", lambda second=second: second)
        firsts.append(beat.step(number))
    beat.held_up(1.25)
    beat.held_up(0.5)
    assert firsts == [True, False, False, False]
    pulse = read(str(path))
    # Said again, or of a step that was done before, it is no news.
    assert (pulse.step, pulse.step_ms, pulse.first_step_ms) == (42, 101_000, 100_000)
    assert (pulse.state, pulse.checkpoint_ms) == (STEPPING, 1750)


def test_a_touch_moves_the_time_on(tmp_path: Path) -> None:
    path = tmp_path / "beat"
    path.touch()
    beat = Beat(str(path))
    beat.step(1)
    before = read(str(path)).at
    beat.touch()
    assert read(str(path)).at > before


def test_without_a_file_nothing_happens(tmp_path: Path) -> None:
    assert Beat("").step(1)
    Beat(str(tmp_path / "absent")).step(1)
    assert read(str(tmp_path / "absent")) == Pulse()


def test_a_report_after_the_last_step_is_a_sign_of_life_and_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "beat"
    path.touch()
    beat = Beat(str(path))
    seen = []
    acts = [lambda: beat.step(42), beat.finish, lambda: beat.step(42), beat.finish, lambda: beat.step(43)]
    for second, act in enumerate([*acts, beat.finish, beat.start], 100):
        monkeypatch.setattr("time.time", lambda second=second: second)
        before = read(str(path)).at
        act()
        pulse = read(str(path))
        assert pulse.at > before and pulse.pid == os.getpid()
        seen.append((pulse.state, pulse.step, pulse.finished_ms))
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
    beat = Beat(str(path))
    beat.allow(1000.0)
    assert read(str(path)) == Pulse()
    beat.step(1)
    at = read(str(path)).at
    beat.allow(1000.0)
    allowed = read(str(path))
    assert not hung(allowed, at + 1000.0, 10.0)
    assert hung(allowed, allowed.at + 10.1, 10.0)
    beat.touch()
    assert read(str(path)).at < at + 1000.0


@pytest.mark.parametrize("joined", [False, True])
def test_a_pulse_tells_a_joined_program_from_the_hook(tmp_path: Path, joined: bool) -> None:
    path = tmp_path / "beat"
    path.touch()
    Beat(str(path), joined).start()
    assert read(str(path)).joined is joined
