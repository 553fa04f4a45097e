"""Tests of the memory figures of this process."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from convoy_workloads.runtime import process_status
from convoy_workloads.runtime.process_status import status_bytes


def test_touched_memory_is_resident() -> None:
    size = 64 << 20
    before = status_bytes("VmRSS")
    with mmap.mmap(-1, size) as memory:
        for at in range(0, size, mmap.PAGESIZE):
            memory[at] = 1
        assert size // 2 < status_bytes("VmRSS") - before < 2 * size
    assert status_bytes("VmHWM") >= status_bytes("VmRSS")


@pytest.mark.parametrize("text", [None, "Name:\tpython\n"])
def test_a_system_without_the_figure_is_named(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = tmp_path / "status"
    if text is not None:
        status.write_text(text)
    monkeypatch.setattr(process_status, "_STATUS", status)
    with pytest.raises(RuntimeError, match="has no VmRSS: measuring the memory of a process needs Linux"):
        status_bytes("VmRSS")
