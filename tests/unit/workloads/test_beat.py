from __future__ import annotations

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
        (FINISHED, 1e9, False),
    ],
)
def test_who_is_hung_with_ten_seconds_allowed(state: int, silence: float, is_hung: bool) -> None:
    assert hung(Pulse(state, 5, 100.0), 100.0 + silence, 10.0) == is_hung


def test_the_launcher_reads_what_the_rank_wrote(tmp_path: Path) -> None:
    path = tmp_path / "beat"
    path.touch()
    assert read(str(path)) == Pulse()
    beat = Beat(str(path))
    seen = []
    for act in (beat.touch, beat.start, beat.step, beat.step, beat.touch, beat.finish):
        act()
        pulse = read(str(path))
        seen.append((pulse.state, pulse.steps))
    assert seen == [(SILENT, 0), (STARTED, 0), (STEPPING, 1), (STEPPING, 2), (STEPPING, 2), (FINISHED, 2)]


def test_a_touch_moves_the_time_on(tmp_path: Path) -> None:
    path = tmp_path / "beat"
    path.touch()
    beat = Beat(str(path))
    beat.step()
    before = read(str(path)).at
    beat.touch()
    assert read(str(path)).at > before


def test_without_a_file_nothing_happens(tmp_path: Path) -> None:
    Beat("").step()
    Beat(str(tmp_path / "absent")).step()
    assert read(str(tmp_path / "absent")) == Pulse()
