"""Where the ranks of this container leave their pulses for the launcher's watchdog."""
# ruff: noqa: PTH118, PTH123 - PID 1 keeps its imports few

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile


class Beats:
    """A folder of pulse files, in memory where that is possible."""

    def __init__(self) -> None:
        self._folder = _scratch()

    def new(self, incarnation: int, rank: int) -> str:
        """The path of an empty pulse; empty when nothing can be written, then the rank is never judged."""
        if not self._folder:
            return ""
        path = os.path.join(self._folder, f"{incarnation}-{rank}")
        with contextlib.suppress(OSError), open(path, "wb"):
            return path
        return ""

    def remove(self) -> None:
        """Deletes the folder."""
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def _scratch() -> str:
    for parent in ("/dev/shm", None):  # noqa: S108 - mkdtemp makes a folder of our own there
        with contextlib.suppress(OSError):
            return tempfile.mkdtemp(prefix="convoy-", dir=parent)
    return ""
