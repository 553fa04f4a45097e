"""Tests of `open_read_only` on kernels that cannot create detached mounts."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from convoy_agents.csi import mounts


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "shard"
    path.write_bytes(b"kept")
    return path


def fails(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def call(path: Path, *arguments: Any) -> int:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(mounts, "_call", call)


def test_a_kernel_without_the_system_call_gets_a_read_only_open(
    shard: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails(monkeypatch, errno.ENOSYS)
    fd = mounts.open_read_only(shard)
    try:
        assert os.read(fd, 10) == b"kept"
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.write(fd, b"x")
    finally:
        os.close(fd)


def test_other_errors_of_the_system_call_are_raised(shard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails(monkeypatch, errno.EPERM)
    with pytest.raises(PermissionError, match=str(shard)):
        mounts.open_read_only(shard)
