"""Work that is done beside the training, on threads, one piece after another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from convoy_workloads.runtime.log import log_line

_WARN_SECONDS = 60.0


class BackgroundWorker:
    """Of one rank. What fails is complained about; the training goes on without."""

    def __init__(self, rank: int) -> None:
        self.failure = ""
        """Why the rank cannot save; empty while it can."""
        self._rank = rank
        self._thread: threading.Thread | None = None
        self._warned = -_WARN_SECONDS

    @property
    def working(self) -> bool:
        """Whether something is not done yet."""
        return self._thread is not None and self._thread.is_alive()

    def submit(self, work: Callable[..., Any], *arguments: Any) -> None:
        """Has it done after what is being done."""
        before = self._thread

        def run() -> None:
            if before is not None:
                before.join()
            try:
                work(*arguments)
            except Exception as error:  # the training goes on without
                self.failure = f"{type(error).__name__}: {error}"
                self.warn(self.failure)

        self._thread = threading.Thread(target=run, name="convoy-save", daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Waits until all is done, for so many seconds."""
        if self._thread is not None:
            self._thread.join(seconds)

    def warn(self, why: str) -> None:
        """Says, now and then, why the rank cannot save."""
        now = time.monotonic()
        if now - self._warned >= _WARN_SECONDS:
            self._warned = now
            log_line(f"RANK {self._rank} CANNOT SAVE: {why}")
