"""Tests of the log of an index: its end, damage, and records that are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from convoy_workloads.engines.aperon import log
from convoy_workloads.engines.aperon.errors import CorruptFile
from convoy_workloads.engines.aperon.settings import Options
from convoy_workloads.engines.aperon.storage import Storage


def records(folder: Path, count: int, synced: int = 0) -> Path:
    """Write a log. Its last record says which one was on the disk."""
    path = log.log_path(folder, 1)
    every = (
        log.encode_record(number, b"data" * number, synced if number == count else 0)
        for number in range(1, count + 1)
    )
    path.write_bytes(b"".join(every))
    return path


def test_a_log_ends_before_its_first_incomplete_record(tmp_path: Path) -> None:
    path = records(tmp_path, 4)
    data = path.read_bytes()
    third = len(b"".join(log.encode_record(number, b"data" * number) for number in (1, 2, 3)))
    for size in range(third, len(data)):
        path.write_bytes(data[:size])
        assert [number for number, _ in log.read_logs(tmp_path, 0)] == [1, 2, 3]
    path.write_bytes(data)
    assert [number for number, _ in log.read_logs(tmp_path, 2)] == [3, 4]
    log.Log(Storage(), tmp_path, 5, Options()).close()
    path.write_bytes(data[:-1])
    log.Log(Storage(), tmp_path, 4, Options()).close()
    assert path.stat().st_size == third


@pytest.mark.parametrize(("synced", "damaged"), [(0, False), (1, False), (2, True), (3, True)])
def test_a_damaged_record_is_the_end_of_a_log_unless_it_was_on_the_disk(
    tmp_path: Path, synced: int, damaged: bool
) -> None:
    """A power failure may lose a page of what was not synced. The second record loses one."""
    path = records(tmp_path, 4, synced)
    second = len(log.encode_record(1, b"data"))
    data = bytearray(path.read_bytes())
    data[second + 5 : second + 30] = bytes(25)
    path.write_bytes(data)
    if damaged:
        with pytest.raises(
            CorruptFile, match="record 2 at byte 32 is damaged, and was on the disk when record 4"
        ):
            list(log.read_logs(tmp_path, 0))
        return
    assert [number for number, _ in log.read_logs(tmp_path, 0)] == [1]
    end = log.Log(Storage(), tmp_path, 2, Options())
    end.append(2, b"again")
    end.close()
    assert list(log.read_logs(tmp_path, 0)) == [(1, b"data"), (2, b"again")]


def test_records_say_what_was_on_the_disk(tmp_path: Path) -> None:
    """So a damaged record that was acknowledged is an error, also after the log was opened again."""
    options = Options(fsync="interval", fsync_seconds=3600)
    first = log.Log(Storage(), tmp_path, 1, options)
    first.append(1, b"one")
    first.append(2, b"two")
    first.sync()
    first.append(3, b"three")
    first.append(4, b"four")
    first.close()
    path = log.log_path(tmp_path, 1)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"two", b"tow"))
    with pytest.raises(CorruptFile, match=r"record 2 .* when record 3"):
        list(log.read_logs(tmp_path, 0))
    path.write_bytes(whole.replace(b"three", b"threw"))
    assert [number for number, _ in log.read_logs(tmp_path, 0)] == [1, 2]
    path.write_bytes(whole)
    again = log.Log(Storage(), tmp_path, 5, options)
    again.append(5, b"five")
    again.close()
    path.write_bytes(path.read_bytes().replace(b"three", b"threw"))
    with pytest.raises(CorruptFile, match=r"record 3 .* when record 5"):
        list(log.read_logs(tmp_path, 0))


def test_records_in_a_wrong_order_and_missing_logs_are_errors(tmp_path: Path) -> None:
    path = log.log_path(tmp_path, 1)
    path.write_bytes(log.encode_record(1, b"") + log.encode_record(3, b""))
    with pytest.raises(CorruptFile, match="record 3 at byte 28 stands in the place of 2"):
        list(log.read_logs(tmp_path, 0))
    path.unlink()
    log.log_path(tmp_path, 5).write_bytes(log.encode_record(5, b""))
    with pytest.raises(CorruptFile, match="missing: the next log starts with record 5"):
        list(log.read_logs(tmp_path, 0))
