"""Tests of the cache of the cluster's programs."""

from __future__ import annotations

import os
from pathlib import Path

from e2e.cluster import binaries


def folder(root: Path, name: str, age: int) -> Path:
    path = root / name
    path.mkdir()
    os.utime(path, (1000 - age, 1000 - age))
    return path


def linked_set(root: Path, name: str, age: int, *parts: Path) -> Path:
    path = folder(root, name, age)
    for part in parts:
        (path / part.name).symlink_to(part / part.name)
    os.utime(path, (1000 - age, 1000 - age))
    return path


def test_programs_that_were_not_used_for_long_are_deleted(tmp_path: Path) -> None:
    shared, old, running = (
        folder(tmp_path, name, 900) for name in ("containerd-v1", "kubernetes-1.30", "kubernetes-1.31")
    )
    newest = [linked_set(tmp_path, f"cluster-{age}", age, shared) for age in range(binaries._KEEP_SETS)]
    unused = linked_set(tmp_path, "cluster-unused", 800, old, shared)
    in_use = linked_set(tmp_path, "cluster-in-use", 850, running)
    tools = [folder(tmp_path, f"tool-v{age}", age) for age in range(binaries._KEEP_TOOLS + 1)]
    (tmp_path / "build.log").touch()
    binaries.prune(tmp_path, {in_use})
    deleted = {unused, old, tools[-1]}
    assert {
        path for path in [shared, old, running, *newest, unused, in_use, *tools] if not path.exists()
    } == deleted
    assert (tmp_path / "build.log").exists()
