"""A short random schedule of operations and crashes, and proof that it notices mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cases import cases

from convoy_workloads.engines.aperon import log
from convoy_workloads.engines.aperon.errors import CorruptFile
from convoy_workloads.engines.aperon.faulty_storage import FaultyAppendFile
from convoy_workloads.engines.aperon.random_schedule import Mismatch, Schedule
from convoy_workloads.engines.aperon.state import SegmentView


def test_an_index_agrees_with_a_dict(tmp_path: Path) -> None:
    schedule = Schedule(tmp_path, seed=2)
    schedule.run(cases(300))
    schedule.close()
    assert schedule.results > 300 and schedule.counts["crashes"] >= 2


def test_the_schedule_notices_rows_that_are_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SegmentView, "without", lambda view, rows: view)
    with pytest.raises(Mismatch):
        Schedule(tmp_path, seed=0).run(300)


def test_the_schedule_notices_operations_that_are_not_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FaultyAppendFile, "sync", lambda file: None)
    with pytest.raises(Mismatch, match="acknowledged"):
        Schedule(tmp_path, seed=0).run(600)


def test_the_schedule_notices_a_lost_page_that_is_called_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole records may follow a lost page of what was not synced."""
    encode = log.encode_record
    monkeypatch.setattr(log, "encode_record", lambda number, data, synced: encode(number, data, number - 1))
    with pytest.raises(CorruptFile, match="is damaged, and was on the disk"):
        Schedule(tmp_path, seed=0).run(3000)
