"""Background work of a rank. It runs in threads beside the training, one task after another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from convoy_workloads.runtime.log import log_line

_WARN_SECONDS = 60.0


class BackgroundWorker:
    """Runs submitted tasks one after another, in the order of their submission. A task that fails is
    reported in the log and does not end the training.
    """

    def __init__(self, rank: int) -> None:
        self.failure = ""
        """The error that last kept the rank from saving; empty if the rank can save."""
        self._rank = rank
        self._thread: threading.Thread | None = None
        self._warned = -_WARN_SECONDS

    @property
    def working(self) -> bool:
        """True while any submitted task is unfinished."""
        return self._thread is not None and self._thread.is_alive()

    def submit(self, work: Callable[..., Any], *arguments: Any) -> None:
        """Run `work` in the background, after all tasks that were submitted earlier."""
        before = self._thread

        def run() -> None:
            if before is not None:
                before.join()
            try:
                work(*arguments)
            except Exception as error:  # A failed task must not end the training.
                self.failure = f"{type(error).__name__}: {error}"
                self.warn(self.failure)

        self._thread = threading.Thread(target=run, name="convoy-save", daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait up to `seconds` until all submitted tasks have ended."""
        if self._thread is not None:
            self._thread.join(seconds)

    def warn(self, why: str) -> None:
        """Write to the log that the rank cannot save, with the reason `why`. Write at most one such line a
        minute.
        """
        now = time.monotonic()
        if now - self._warned >= _WARN_SECONDS:
            self._warned = now
            log_line(f"RANK {self._rank} CANNOT SAVE: {why}")
