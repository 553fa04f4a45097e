"""The state folder of a replica that only reads: one for each snapshot, so that another snapshot in
spec.model is served as soon as the replica starts with it.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from convoy_workloads.serving.protocol import ModelError

_PREFIX = "snapshot-"
_READ = 1 << 20
"""Larger files count with their names and sizes only: a manifest names them, and its content counts."""


def folder_for(state: Path, path: Path | None) -> Path:
    """Return the folder for the index of `path`, the folder of spec.model. Raises ModelError if there is no
    readable snapshot.
    """
    if path is None:
        raise ModelError("params.read_only: there is no snapshot in spec.model to serve")
    try:
        return state / f"{_PREFIX}{_digest(path)}"
    except OSError as error:
        raise ModelError(f"spec.model cannot be read: {error}") from error


def remove_others(folder: Path) -> None:
    """Delete the indexes of other snapshots."""
    for one in folder.parent.glob(f"{_PREFIX}*"):
        if one != folder:
            shutil.rmtree(one, ignore_errors=True)


def _digest(path: Path) -> str:
    found = hashlib.blake2b(digest_size=8)
    for one in sorted(one for one in path.rglob("*") if one.is_file()):
        size = one.stat().st_size
        found.update(f"{one.relative_to(path)}\0{size}\0".encode())
        if size <= _READ:
            found.update(one.read_bytes())
    return found.hexdigest()
