"""Tests that a run removes the mounts of killed runs, and no others."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration import leftovers

from convoy_agents.csi import mounts


@pytest.fixture
def ended_process() -> int:
    with subprocess.Popen(["true"]) as process:
        return process.pid


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid():
        pytest.skip("mounts need root")
    yield tmp_path
    leftovers.unmount_below(tmp_path)


def mounted(folder: Path, lock: str) -> Path:
    """Mount a tmpfs in a folder of a run, and another one in it."""
    inner = folder / "memory" / "inner"
    inner.parent.mkdir(parents=True)
    mounts.tmpfs(inner.parent, 2**20)
    inner.mkdir()
    mounts.tmpfs(inner, 2**20)
    (folder / ".lock").write_text(lock)
    return folder


def test_only_mounts_of_ended_runs_are_removed(root: Path, ended_process: int) -> None:
    killed, damaged = mounted(root / "pytest-1", str(ended_process)), mounted(root / "garbage-1", "")
    running = mounted(root / "pytest-2", str(os.getpid()))
    leftovers.unmount_ended_runs(root)
    left = [Path(one.target) for one in mounts.table() if root in Path(one.target).parents]
    assert left == [running / "memory", running / "memory" / "inner"]
    assert not any((killed / "memory").iterdir()) and not any((damaged / "memory").iterdir())
