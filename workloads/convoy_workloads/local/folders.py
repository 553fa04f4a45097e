"""The folders of a local run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Folders:
    """The folders that a local run uses, and the lock of its checkpoint folder."""

    scratch: Path
    checkpoints: Path
    lock: int
    """Descriptor of an open lock file. While any launcher of this run lives, the lock keeps other runs from
    using the folder `checkpoints`.
    """
    start: Path
    """Working directory of the ranks."""
