"""Counts the files of a folder and finds their median size, within limits."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

MAX_ENTRIES = 20_000
"""Maximum number of entries of all folders together that are read in an incarnation."""
MAX_SECONDS = 2.0
"""Maximum time for all folders together."""
PAUSE_ENTRIES, PAUSE_SECONDS = 256, 0.001
"""The thread sleeps PAUSE_SECONDS after this many entries, so that the program's threads run."""


@dataclass(frozen=True)
class Folder:
    """The files of a folder, as far as they were counted."""

    path: str
    files: int
    median_bytes: int

    def message(self) -> dict[str, object]:
        """Return the folder in the form of the `progress` message."""
        return {"path": self.path, "files": self.files, "medianBytes": self.median_bytes}


class FileCounter:
    """Counts files until its limits are reached. Links are not followed."""

    def __init__(
        self,
        entries: int = MAX_ENTRIES,
        seconds: float = MAX_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._entries = entries
        self._clock = clock
        self._end = clock() + seconds

    def count(self, path: str) -> Folder | None:
        """Return the files below `path`; None if there are none, or if no limit is left."""
        sizes: list[int] = []
        waiting = deque([path])
        while waiting and not self._spent:
            try:
                with os.scandir(waiting.popleft()) as listing:
                    for entry in listing:
                        if self._spent:
                            break
                        self._read(entry, sizes, waiting)
            except OSError:
                continue  # The folder is gone or may not be read. Its files do not count.
        return Folder(path, len(sizes), sorted(sizes)[(len(sizes) - 1) // 2]) if sizes else None

    def _read(self, entry: os.DirEntry[str], sizes: list[int], waiting: deque[str]) -> None:
        self._entries -= 1
        if self._entries % PAUSE_ENTRIES == 0:
            time.sleep(PAUSE_SECONDS)
        try:
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                sizes.append(entry.stat(follow_symlinks=False).st_size)
        except OSError:
            return

    @property
    def _spent(self) -> bool:
        return self._entries <= 0 or self._clock() >= self._end
