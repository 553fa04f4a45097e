"""The files through which the ranks of a container inform the launcher: heartbeats, and the job's result."""
# ruff: noqa: PTH118, PTH123 - PID 1 keeps its imports few

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile


class HeartbeatFiles:
    """A folder with the heartbeat files and the file of the result, in memory (/dev/shm) if possible."""

    def __init__(self) -> None:
        self._folder = _make_folder()

    def create(self, incarnation: int, rank: int) -> str:
        """Create an empty heartbeat file and return its path.

        Return an empty text if the file cannot be written. The launcher then cannot detect a hang of the
        rank.
        """
        if not self._folder:
            return ""
        path = os.path.join(self._folder, f"{incarnation}-{rank}")
        with contextlib.suppress(OSError), open(path, "wb"):
            return path
        return ""

    def result_path(self, incarnation: int) -> str:
        """Return the path of the file for the result of rank 0; empty if there is no folder for files."""
        return os.path.join(self._folder, f"{incarnation}-result") if self._folder else ""

    @property
    def listener_path(self) -> str:
        """Path for the Unix socket of the kept listener; empty if there is no folder for files."""
        return os.path.join(self._folder, "listener") if self._folder else ""

    def remove(self) -> None:
        """Delete the folder with the heartbeat files."""
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def _make_folder() -> str:
    for parent in ("/dev/shm", None):  # noqa: S108 - mkdtemp makes a folder of our own there
        with contextlib.suppress(OSError):
            return tempfile.mkdtemp(prefix="convoy-", dir=parent)
    return ""
