"""Tests of benches with parts: which rows a run of some parts replaces."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from e2e.bench.kit.parts import measure_parts
from e2e.cluster.progress import Progress

from convoy_workloads.bench import parts
from convoy_workloads.bench.figures import Figures, Metric
from convoy_workloads.bench.parts import PartedBench

BENCH = PartedBench("toy", "make toy", ("one", "two"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(parts, "FOLDER", tmp_path)
    return tmp_path


def adds(name: str, value: float, target: float | None = None) -> Callable[[Figures], None]:
    return lambda found: found.add(Metric(name, "s", target), value)


def fails(found: Figures) -> None:
    adds("broken", 1)(found)
    raise OSError("the machine went away")


def measure(complete: bool = True, **chosen: Callable[[Figures], None]) -> list[str]:
    return measure_parts(BENCH, chosen, complete, Progress())


def document(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "toy.json").read_text())
    return found


def rows(folder: Path) -> list[tuple[str, str, float]]:
    return [(row["part"], row["metric"], row["value"]) for row in document(folder)["rows"]]


def test_a_part_replaces_only_its_own_rows(folder: Path) -> None:
    measure(two=adds("b", 1), one=adds("a", 1))
    assert rows(folder) == [("one", "a", 1), ("two", "b", 1)]
    measure(one=adds("c", 2))
    assert rows(folder) == [("one", "c", 2), ("two", "b", 1)]


def test_each_part_keeps_the_day_of_its_own_run(folder: Path) -> None:
    for part, date in (("one", "2026-01-01"), ("two", "2026-02-02"), ("two", "2026-03-03")):
        BENCH.record(part, Figures(), date)
    found = document(folder)
    assert {name: run["date"] for name, run in found["parts"].items()} == {
        "one": "2026-01-01",
        "two": "2026-03-03",
    }
    assert found["date"] == "2026-03-03"


def test_rows_of_parts_that_no_longer_exist_are_dropped(folder: Path) -> None:
    PartedBench("toy", "make toy", ("gone",)).record("gone", Figures(), "2026-01-01")
    measure(two=adds("b", 1))
    assert list(document(folder)["parts"]) == ["two"]
    with pytest.raises(ValueError, match="toy has no part three; it has one, two"):
        BENCH.record("three", Figures(), "2026-01-01")


def test_a_part_that_fails_is_not_recorded_and_earlier_parts_are(folder: Path) -> None:
    measure(two=adds("b", 1))
    with pytest.raises(OSError, match="went away"):
        measure(one=adds("a", 1), two=fails)
    assert rows(folder) == [("one", "a", 1), ("two", "b", 1)]


def test_a_part_with_a_failed_check_is_not_recorded_and_is_named(folder: Path) -> None:
    assert measure(one=adds("equality: bits", 1, target=0), two=adds("b", 1)) == ["equality: bits"]
    assert rows(folder) == [("two", "b", 1)]


def test_fewer_repeats_are_printed_only(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measure(complete=False, one=adds("a", 7))
    assert not (folder / "toy.json").exists()
    assert "a " in capsys.readouterr().out
